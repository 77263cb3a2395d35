"""Reads pods from their rows, for plugins that need more than the scheduling class."""

from collections.abc import Hashable, Mapping, Sequence

import msgspec

from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.pods import pod_manifests


class StoredPods:
    """Reads the pods of the live service (``handles.StoredPods``)."""

    def manifests(self, keys: Sequence[Hashable]) -> Mapping[Hashable, Manifest]:
        """Return the manifests of existing pods by id. Queries once."""
        ids = [key for key in keys if isinstance(key, int)]
        if not ids:
            return {}
        head = {"apiVersion": "v1", "kind": "Pod"}
        return {
            pod_id: {**head, **msgspec.json.decode(text)}
            for pod_id, text in pod_manifests(ids).items()
        }
