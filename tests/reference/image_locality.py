"""ImageLocality: prefer nodes that hold the pod's images already, the larger the better.

Source: pkg/scheduler/framework/plugins/imagelocality/image_locality.go, v1.36 and v1.37.
"""

from clusterstate.objects.values.compatibility import Compatibility
from clusterstate.objects.values.pod import Pod
from tests.reference.cluster import Cluster, PlacedNode
from tests.reference.rule import MAX_NODE_SCORE, Rule

MIB = 1024 * 1024
LOWEST = 23 * MIB
"""Sums below this score 0."""
HIGHEST_PER_CONTAINER = 1000 * MIB
"""Sums above this times the number of containers score 100."""


def normalized_image_name(name: str) -> str:
    """Return ``name`` with the tag ``latest`` when it has neither tag nor digest."""
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"


def image_sizes(node: PlacedNode) -> dict[str, int]:
    """Return the size in bytes of each image on ``node`` by each of its names."""
    return {name: image.size_bytes for image in node.node.status.images for name in image.names}


class ImageLocality(Rule[None, None]):
    """Sums the sizes of the images present, each scaled by the share of nodes that hold it."""

    name = "ImageLocality"
    scores = True

    def score(self, state: None, pod: Pod, node: PlacedNode, cluster: Cluster) -> int:
        """Return 0 to 100.

        The scaling by spread keeps one node with a rare image from drawing every pod to it. Image
        volumes add to the sum; until 1.36 they do not raise the limit as containers do.
        """
        containers = (*pod.spec.init_containers, *pod.spec.containers)
        volumes = [volume.image.reference for volume in pod.spec.volumes if volume.image]
        here = image_sizes(node)
        total = 0
        for name in (*(container.image for container in containers), *volumes):
            image = normalized_image_name(name)
            if image in here:
                holders = sum(image in image_sizes(other) for other in cluster.nodes)
                total += int(here[image] * (holders / len(cluster.nodes)))
        limiting = len(containers)
        if cluster.version >= Compatibility.V1_37:
            limiting += len(volumes)
        highest = HIGHEST_PER_CONTAINER * limiting
        if total < LOWEST:
            return 0
        total = min(total, highest)
        return MAX_NODE_SCORE * (total - LOWEST) // (highest - LOWEST)
