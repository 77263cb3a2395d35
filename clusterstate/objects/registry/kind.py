"""A kind of object in the registry: its names, its rows, and how it is written."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import force_setattr

from clusterstate.objects.registry.strategies import Strategy
from clusterstate.objects.registry.wire_types import STRUCTS
from clusterstate.objects.values.meta import Manifest

SHARED_TABLE: Final = "generic_object"
"""The table of all kinds that have none of their own; its column ``kind`` holds their codes."""


class Column(msgspec.Struct, frozen=True):
    """A column of a kind's own table, in addition to those that all kinds have.

    ``type`` is the SQL type to which its parameter is cast; ``read`` returns the value from the
    manifest.
    """

    name: str
    type: str
    read: Callable[[Manifest], Any]


class Part(msgspec.Struct, frozen=True):
    """A list in the manifest whose items are rows of a table of their own, in order.

    ``owner`` is the column that refers to the object; ``columns`` read one item each, and the
    column ``position`` counts from 1. ``read`` returns the items of a manifest.
    """

    table: str
    owner: str
    columns: tuple[Column, ...]
    read: Callable[[Manifest], list[Manifest]]


def _plural(singular: str) -> str:
    """Return the resource of a kind (``UnsafeGuessKindToResource``, apimachinery, v1.36)."""
    if singular.endswith("s"):
        return f"{singular}es"
    return f"{singular[:-1]}ies" if singular.endswith("y") else f"{singular}s"


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of object.

    ``version`` is what is given out; ``versions`` is everything that requests may use, where older
    ones have the same shape, or a form of their own (`api.forms.other_forms`). ``plural`` is the
    resource name in paths and messages, if it is not the one that Kubernetes guesses from the name.
    ``wire_type`` names the fields that a client may write: those of Kubernetes' type of the kind's
    name, unless the entry has another. What is never stored has none.

    ``code`` stands for the kind in the change log and in the shared table. No code is used twice,
    and 0 marks what is composed when it is read and never registered. ``table`` has the kind's
    rows, ``columns`` are those that only this kind has. ``selectable`` are the paths that a field
    selector may name in addition to ``METADATA_FIELDS``, with the SQL expression over the row ``t``
    that holds the value; empty: only the document does.

    ``counts_generation``: changes of the spec, or of what else its strategy says, are counted in
    ``metadata.generation``. ``created_by_update``: a PUT creates what is not there.
    ``deleted_together``: a DELETE of a collection deletes its objects; namespaces are deleted one
    by one. ``versions_updates``: a PUT says which version it replaces (``AllowUnconditionalUpdate``
    is false). ``status_at_creation``: a client may send the status with a new object.
    ``new_status``: the status that a new object has, where a client cannot send one: what
    Kubernetes writes even if it is zero. ``names_creators``: new objects say in
    ``metadata.managedFields`` who created them; not so where thousands are created in a second
    (`objects.wire.managed_fields`). ``in_catalogue``: admission keeps all objects of the kind in
    memory (`clusterstate.catalogue`). ``guards_placement``: the table has a ``placement_revision``,
    which moves with every update that may make a placement wrong, so that a bind decided before is
    refused (`actions.pods`). ``has_slots``: columns of the row fill slots of the document
    (`objects.values.document`). ``is_composed``: the row's columns are the object, and a document
    is there only if a client sent one. ``skips_change_log``: some updates move the revision and
    are not in the change log. ``returns_deleted``: a deletion answers with the object instead of a
    Status (``registry.Store.ReturnDeletedObject``). ``has_plain_selector``: ``spec.selector`` is a
    map of labels instead of a label selector. ``deprecated`` is a warning that each answer about
    objects of the kind carries (``APILifecycleDeprecated``, staging/src/k8s.io/api, v1.36).
    ``not_done`` says what a client may expect of a new object and the service does not do; a
    Warning says so. ``strategy`` says what else a write does to a manifest of the kind.
    """

    name: str
    plural: str = ""
    wire_type: type[msgspec.Struct] = msgspec.Struct
    code: int = 0
    table: str = SHARED_TABLE
    columns: tuple[Column, ...] = ()
    selectable: Mapping[str, str] = {}
    counts_generation: bool = False
    created_by_update: bool = False
    deleted_together: bool = True
    versions_updates: bool = False
    status_at_creation: bool = False
    new_status: Manifest = {}
    names_creators: bool = True
    in_catalogue: bool = False
    guards_placement: bool = False
    has_slots: bool = False
    is_composed: bool = False
    skips_change_log: bool = False
    returns_deleted: bool = False
    has_plain_selector: bool = False
    deprecated: str = ""
    not_done: str = ""
    parts: tuple[Part, ...] = ()
    strategy: Strategy = Strategy()
    group: str = ""
    version: str = "v1"
    versions: tuple[str, ...] = ("v1",)
    short_names: tuple[str, ...] = ()
    namespaced: bool = True
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.plural:
            force_setattr(self, "plural", _plural(self.name.lower()))
        if self.code and self.wire_type is msgspec.Struct:
            force_setattr(self, "wire_type", STRUCTS.get(self.name, msgspec.Struct))

    @property
    def api_version(self) -> str:
        """The ``apiVersion`` of objects: ``v1``, ``apps/v1``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def singular(self) -> str:
        """The name of one object of the kind in commands and messages: ``configmap``."""
        return self.name.lower()

    @property
    def list_kind(self) -> str:
        """The ``kind`` of lists."""
        return f"{self.name}List"

    @property
    def resource(self) -> str:
        """The resource as error messages name it: ``pods``, ``deployments.apps``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def is_shared(self) -> bool:
        """Whether the kind's rows are in the shared table, which names the kind of each row."""
        return self.table == SHARED_TABLE

    @property
    def rows(self) -> str:
        """An SQL FROM item with the rows of this kind alone; needs an alias."""
        if not self.is_shared:
            return self.table
        place = "" if self.namespaced else " AND namespace = ''"
        return f"(SELECT * FROM {SHARED_TABLE} WHERE kind = {self.code}{place})"
