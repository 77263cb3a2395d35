"""Values of actions: an object to create, a stored object, a deleted one, a locked row."""

import msgspec

from clusterstate.admission.request import User
from clusterstate.objects.values import document
from clusterstate.objects.values.actor import Actor
from clusterstate.objects.values.document import Overlay
from clusterstate.objects.values.meta import Manifest

NewObject = tuple[str, Manifest, User]
"""An object to create: its namespace, its manifest, and the user who creates it."""


class StoredObject(msgspec.Struct, frozen=True):
    """An object as it was stored (or would be, in a dry run); ``manifest`` is its JSON.

    ``changed``: False for an update without effect: no new revision, no change in the log.
    """

    manifest: bytes
    revision: int
    warnings: list[str]
    uid: str = ""
    changed: bool = True


class DeletedObject(msgspec.Struct, frozen=True):
    """The answer to a deletion. ``gone`` is false while the object stays for its finalizers."""

    manifest: bytes
    revision: int
    uid: str
    gone: bool


class LockedRow(msgspec.Struct):
    """A stored row, locked for change, with its document."""

    id: int
    uid: str
    namespace: str
    name: str
    document_id: int
    revision: int
    text: str
    overlay: Overlay = document.EMPTY
    class_id: int = 0
    phase: str = ""
    nominated_node_name: str = ""
    actor: Actor | None = None
    """The user who changes it; ``None``: the one for whom this thread acts."""

    def manifest(self) -> Manifest:
        """Return the stored manifest, decoded anew; the caller may change it."""
        return document.decode(self.text, self.revision, self.overlay)

    def composed(self) -> bytes:
        """Return the stored manifest as JSON."""
        return document.compose(self.text, self.revision, self.overlay)
