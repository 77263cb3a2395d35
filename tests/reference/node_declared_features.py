"""NodeDeclaredFeatures: a pod goes where the node declares what the pod needs.

Source: pkg/scheduler/framework/plugins/nodedeclaredfeatures and component-helpers
nodedeclaredfeatures/features, v1.37.
"""

from clusterstate.objects.values.compatibility import Compatibility
from clusterstate.objects.values.pod import Pod
from tests.reference.cluster import Cluster, PlacedNode
from tests.reference.rule import PASS, SKIPPED, UNRESOLVABLE, Begun, Rule, Verdict


def _needed(pod: Pod, is_1_36: bool) -> set[str]:
    needed = set()
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        for rule in container.restart_policy_rules:
            if rule.action == "RestartAllContainers":
                needed.add("RestartAllContainersOnContainerExits")
        for mount in container.volume_mounts:
            if mount.bind_mount_options and not is_1_36:
                needed.add("VolumeBindMountOptions")
    if pod.spec.host_network and pod.spec.host_users is False:
        needed.add("UserNamespacesHostNetworkSupport")
    return needed


class NodeDeclaredFeatures(Rule[Compatibility, None]):
    """Rejects nodes whose ``status.declaredFeatures`` lack one that the pod needs."""

    name = "NodeDeclaredFeatures"
    filters = True

    def pre_filter(self, pod: Pod, cluster: Cluster) -> Begun[Compatibility]:
        """Note the version; skip pods that need nothing."""
        if not _needed(pod, cluster.version is Compatibility.V1_36):
            return Begun(SKIPPED)
        return Begun(state=cluster.version)

    def filter(self, state: Compatibility | None, pod: Pod, node: PlacedNode) -> Verdict:
        """Compare what the pod needs with what the node declares."""
        is_1_36 = state is Compatibility.V1_36
        missing = sorted(_needed(pod, is_1_36) - set(node.node.status.declared_features))
        if not missing:
            return PASS
        if is_1_36:
            text = f"check failed - unsatisfied requirements: {', '.join(missing)}"
            return Verdict(UNRESOLVABLE, (f"node declared features {text}",))
        return Verdict(UNRESOLVABLE, ("node(s) didn't match Pod's required features",))
