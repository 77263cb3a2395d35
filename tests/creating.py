"""One pod at a time, for tests: the product creates pods in batches."""

from datetime import datetime

from clusterstate.actions.pods.create import create_pods
from clusterstate.actions.writing.stored import StoredObject
from clusterstate.admission.request import NOBODY, User
from clusterstate.objects.values.meta import Manifest


def create_pod(
    manifest: Manifest,
    *,
    now: datetime,
    user: User = NOBODY,
    namespace: str = "",
) -> StoredObject:
    """Create one pod; see ``create_pods``."""
    (stored,) = create_pods([manifest], now=now, user=user, namespace=namespace)
    assert isinstance(stored, StoredObject)
    return stored
