"""Lists, exact as of a revision, with label and field selectors and pages."""

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from clusterstate.change_log import changes, lineage
from clusterstate.database import sql
from clusterstate.objects.registry import fields
from clusterstate.objects.registry.fields import FieldRequirement
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.values import document
from clusterstate.objects.values.errors import BadRequest, Expired
from clusterstate.objects.values.labels import (
    DOES_NOT_EXIST,
    DOUBLE_EQUALS,
    EQUALS,
    EXISTS,
    GREATER_THAN,
    IN,
    LESS_THAN,
    MANY,
    NOT_EQUALS,
    NOT_IN,
    Requirement,
    Selector,
    SelectorError,
    parse_selector,
)
from clusterstate.queries import past
from clusterstate.queries.objects import _decoder, kept_lists, kind_of
from clusterstate.queries.objects.events import EVENT_COLUMNS, EVENT_FROM, compose_event
from clusterstate.queries.pods import POD_OVERLAY, pod_overlay

MAX_PAGE: Final = 1_000_000

MAX_REMAINING: Final = 200_000
"""How many objects behind the first page are counted; of more it is not said how many there are."""

_EXPIRED_EXACT = "The resourceVersion for the provided list is too old."
_EXPIRED_CONTINUE = (
    "The provided continue parameter is too old to display a consistent list result. You can start"
    " a new list without the continue parameter, or use the continue token in this response to"
    " retrieve the remainder of the results. Continuing with the provided token results in an"
    " inconsistent list - objects that were created, modified, or deleted between the time the"
    " first chunk was returned and now may show up in the list."
)
CONTINUE_SECONDS: Final = 300.0
"""Seconds that a client may take for the pages of a list before its token is too old:
kube-apiserver's ``--etcd-compaction-interval``."""


class Page(msgspec.Struct, frozen=True):
    """Part of a list, as of ``revision``. ``continue_token`` is empty on the last page.

    ``remaining``: how many objects follow, ``None`` if unknown: with selectors, and beyond
    ``MAX_REMAINING``.
    """

    items: list[bytes]
    revision: int
    continue_token: str = ""
    remaining: int | None = None


_DEFAULTS = {"spec.hostNetwork": "false", "status.replicas": "0"}


class _Where:
    """Conditions of a statement and their parameters, collected together."""

    def __init__(self) -> None:
        self.conditions: list[str] = []
        self.parameters: list[Any] = []

    def add(self, condition: str, *parameters: Any) -> None:
        self.conditions.append(condition)
        self.parameters += parameters

    def text(self) -> str:
        return " AND ".join(self.conditions) or "true"


def _label_conditions(where: _Where, column: str, requirements: Sequence[Requirement]) -> None:
    """Add label requirements. ``@>`` and ``?`` use the GIN index; the negations filter."""
    for requirement in requirements:
        operator, key, values = requirement.operator, requirement.key, list(requirement.values)
        if operator == IN and len(values) > MANY:
            # Thousands of conditions would take seconds to plan; a scan with one takes less.
            where.add(f"{column} ->> %s::text = ANY(%s)", key, sql.Texts(values))
        elif operator in (EQUALS, DOUBLE_EQUALS, IN):
            alternatives = " OR ".join([f"{column} @> %s::text::jsonb"] * len(values))
            where.add(
                f"({alternatives})",
                *(msgspec.json.encode({key: value}).decode() for value in values),
            )
        elif operator in (NOT_EQUALS, NOT_IN):
            where.add(f"({column} ->> %s::text <> ALL(%s)) IS NOT FALSE", key, sql.Texts(values))
        elif operator == EXISTS:
            where.add(f"{column} ? %s::text", key)
        elif operator == DOES_NOT_EXIST:
            where.add(f"NOT {column} ? %s::text", key)
        elif operator in (GREATER_THAN, LESS_THAN):
            sign = ">" if operator == GREATER_THAN else "<"
            # Only integers compare; the CASE keeps the cast from other texts.
            where.add(
                f"CASE WHEN {column} ->> %s::text ~ '^[+-]?[0-9]{{1,18}}$'"
                f" THEN ({column} ->> %s::text)::bigint {sign} %s::bigint ELSE false END",
                key,
                key,
                requirement.number,
            )


def _field_conditions(where: _Where, kind: Kind, requirements: Sequence[FieldRequirement]) -> None:
    for requirement in requirements:
        sign = "<>" if requirement.negated else "="
        path = requirement.path
        if path == "metadata.name":
            where.add(f"t.name {sign} %s", requirement.value)
        elif path == "metadata.namespace":
            place = "t.namespace" if kind.namespaced else "''::text"
            where.add(f"{place} {sign} %s", requirement.value)
        elif column := kind.selectable.get(path):
            where.add(f"{column} {sign} %s", requirement.value)
            if path == "spec.nodeName" and requirement.value and not requirement.negated:
                where.add("t.node_name <> ''")  # so that the partial index serves it
        else:
            # Rare fields live in the document only. Without its slots it is plain JSON.
            default = _DEFAULTS.get(path, "")
            where.add(
                "coalesce(replace(d.text, chr(1), '')::json #>> %s, %s)" + f" {sign} %s",
                sql.Texts(path.split(".")),
                default,
                requirement.value,
            )


def parse_labels(text: str) -> Selector:
    """Return the selector of a ``labelSelector`` parameter.

    Raises:
        BadRequest: it does not parse.
    """
    try:
        return parse_selector(text)
    except SelectorError as error:
        raise BadRequest(f"{error}") from None


def list_page(
    kind: Kind | str,
    namespace: str = "",
    *,
    label_selector: str | Selector = "",
    field_selector: str | Sequence[FieldRequirement] = "",
    limit: int | None = None,
    continue_token: str = "",
    exact: int | None = None,
    at: int | None = None,
    acknowledged: bool = False,
    now: float | None = None,
    part: str = "",
) -> Page:
    """Return objects ordered by namespace and name, as of one revision. Queries two to four times.

    ``exact``: that revision, or the next one if it is inside an atomic change; without it, the list
    is of the present. ``at``: a revision from `past.revision_at`, which may be of an earlier
    history.

    An empty ``namespace`` means all. ``part``: only objects whose names contain it; not for events.
    Without ``limit`` everything is in one page. A token continues where its page ended, in the
    state of the first page. ``acknowledged``: the list includes every write that any client was
    answered before; it waits about a second at most for open transactions (`changes.settled`), and
    then omits them. ``now``, in epoch seconds: tokens expire after ``CONTINUE_SECONDS``; without it
    they are valid while their state is kept.

    Raises:
        BadRequest: a selector or the token does not parse, or a field is not selectable.
        Expired: the token is too old, or its revision, or ``exact``, is no longer kept or belongs
            to another history. For a token, ``rest`` continues after its page in the present.
    """
    kind = kind_of(kind)
    labels = parse_labels(label_selector) if isinstance(label_selector, str) else label_selector
    chosen = (
        fields.parse_field_selector(kind.name, field_selector)
        if isinstance(field_selector, str)
        else field_selector
    )
    after = _read_token(continue_token) if continue_token else _START
    if not after.began and now is not None:
        after = msgspec.structs.replace(after, began=int(now))
    if continue_token and after.revision != _PRESENT:
        revision = after.revision
        if not after.past:
            if now is not None and now - after.began > CONTINUE_SECONDS:
                raise Expired(_EXPIRED_CONTINUE, rest=_rest(after))
            try:
                lineage.require(revision)
            except Expired as error:
                raise Expired(error.message, rest=_rest(after)) from None
    elif acknowledged:
        revision = changes.settled((kind.name,)).mark
    else:
        revision = changes.watermark()
    if at is not None:
        revision = at
        after = msgspec.structs.replace(after, past=True)
        if not past.has_past(kind):
            raise Expired(f"former states of {kind.resource} are not kept")
    elif exact is not None:
        lineage.require(exact)
        revision = changes.whole(min(exact, revision))
    if labels.nothing:
        return Page([], revision)
    listing = _Listing(kind, namespace, labels, chosen, revision, limit, after, part)
    keeps = acknowledged and listing.is_whole and exact is at is None and kept_lists.is_kept(kind)
    if keeps and (cached := kept_lists.current(kind, namespace, revision)) is not None:
        return _of_kept(listing, cached)
    try:
        return _list_events(listing) if kind.is_composed else _list_objects(listing, keeps=keeps)
    except Expired as error:
        if exact is not None:
            raise Expired(_EXPIRED_EXACT) from None
        if continue_token and not after.past:
            raise Expired(error.message, rest=_rest(after)) from None
        raise


def list_at(kind: Kind | str, revision: int) -> list[bytes]:
    """Return all objects of a kind as they were at ``revision``. Queries once; not for events.

    Raises:
        Expired: the history no longer reaches back so far.
    """
    return _list_objects(_Listing(kind_of(kind), "", Selector(), (), revision, None, _START)).items


def matching_keys(
    kind: Kind, namespace: str = "", *, label_selector: str = "", field_selector: str = ""
) -> list[tuple[str, str, str]]:
    """Return namespace, name and uid of the objects that match, as they are now. Queries once.

    Raises:
        BadRequest: a selector does not parse, or a field is not selectable.
    """
    labels = parse_labels(label_selector)
    chosen = fields.parse_field_selector(kind.name, field_selector)
    if labels.nothing:
        return []
    space = "t.namespace" if kind.namespaced else "''::text"
    if kind.is_composed:
        where, source = _matching_events(kind, namespace, labels, chosen), EVENT_FROM
    else:
        where = _matching(kind, namespace, labels, chosen)
        source = f"{kind.rows} t"
        if "d.text" in where.text():
            source += " JOIN document d ON d.id = t.document_id"
    return sql.fetch(
        f"SELECT {space}, t.name, t.uid::text FROM {source} WHERE {where.text()} ORDER BY 1, 2",
        where.parameters,
    )


def _matching(
    kind: Kind, namespace: str, labels: Selector, chosen: Sequence[FieldRequirement]
) -> _Where:
    """Return the conditions on ``t``, and its document ``d``, of matching objects; no events."""
    where = _Where()
    if namespace:
        where.add("t.namespace = %s", namespace)
    if kind.has_slots and labels.requirements:
        inner = _Where()
        if namespace:
            inner.add("sc.namespace = %s", namespace)
        _label_conditions(inner, "sc.labels", labels.requirements)
        where.add(
            f"t.class_id IN (SELECT sc.id FROM scheduling_class sc WHERE {inner.text()})",
            *inner.parameters,
        )
    else:
        _label_conditions(where, "t.labels", labels.requirements)
    _field_conditions(where, kind, chosen)
    return where


def _matching_events(
    kind: Kind, namespace: str, labels: Selector, chosen: Sequence[FieldRequirement]
) -> _Where:
    where = _Where()
    if namespace:
        where.add("t.namespace = %s", namespace)
    if labels.requirements:
        _label_conditions(
            where,
            "coalesce(replace(d.text, chr(1), '')::jsonb #> '{metadata,labels}', '{}')",
            labels.requirements,
        )
    _field_conditions(where, kind, chosen)
    return where


class _After(msgspec.Struct, frozen=True):
    """Where a page ended; ``remaining``: how many objects followed, if counted.

    ``past``: the revision belongs to a past moment, and maybe to an earlier history. ``began``:
    when the first page was read, in epoch seconds; 0 if unknown.
    """

    revision: int = 0
    key: tuple[str, str] | None = None
    remaining: int | None = None
    past: bool = False
    began: int = 0


_START: Final = _After()
_PRESENT: Final = -1
"""The revision of a token that goes on in the present, whatever that is when it is used."""


def _rest(after: _After) -> str:
    """Return a token that continues after a page in the present."""
    return _write_token(_After(_PRESENT, after.key))


def revision_of(continue_token: str) -> int | None:
    """Return the revision of a token's list, ``None`` for the present.

    Raises:
        BadRequest: the token does not parse.
    """
    revision = _read_token(continue_token).revision
    return None if revision == _PRESENT else revision


class _Listing(msgspec.Struct, frozen=True):
    """The request for a page of a list."""

    kind: Kind
    namespace: str
    labels: Selector
    chosen: Sequence[FieldRequirement]
    revision: int
    limit: int | None
    after: _After
    part: str = ""

    @property
    def selects(self) -> bool:
        """Whether the list has a selector or part of a name, and so may omit objects."""
        return bool(self.labels.requirements or self.chosen or self.part)

    @property
    def is_whole(self) -> bool:
        """Whether the list has all objects of the kind and namespace, from the first one on."""
        return not self.selects and self.after.key is None

    @property
    def node_name(self) -> str | None:
        """The node in the field selector: empty for pods without a node, ``None`` for any."""
        for one in self.chosen:
            if one.path == "spec.nodeName" and not one.negated and self.kind.has_slots:
                return one.value
        return None

    def page(
        self, items: list[bytes], last: tuple[str, str], behind: Callable[[], int] | None
    ) -> Page:
        """Return a page that is not the last one; ``behind``: how many objects follow, if known."""
        remaining = None
        if not self.selects and behind is not None:
            if self.after.key is None or self.after.revision == _PRESENT:
                counted = behind()
                remaining = counted if counted <= MAX_REMAINING else None
            elif self.after.remaining is not None:
                remaining = self.after.remaining - len(items)
        after = _After(self.revision, last, remaining, self.after.past, self.after.began)
        token = _write_token(after)
        return Page(items, self.revision, token, remaining)


def _of_kept(listing: _Listing, cached: kept_lists.CachedList) -> Page:
    """Return the first page of a cached list."""
    items, limit = cached.items, listing.limit
    if not limit or len(items) <= limit:
        return Page(items, cached.revision)
    at = msgspec.structs.replace(listing, revision=cached.revision)
    return at.page(items[:limit], cached.keys[limit - 1], lambda: len(items) - limit)


def _list_objects(listing: _Listing, *, keeps: bool = False) -> Page:
    kind, namespace, labels, chosen = (
        listing.kind, listing.namespace, listing.labels, listing.chosen
    )  # fmt: skip
    revision, limit, after = listing.revision, listing.limit, listing.after.key
    pods, unlogged = kind.has_slots, kind.skips_change_log
    key = "t.namespace, t.name" if kind.namespaced else "''::text AS namespace, t.name"
    order = "t.namespace, t.name" if kind.namespaced else "t.name"
    where = _matching(kind, namespace, labels, chosen)
    if not unlogged:
        # A renewed lease has a new revision, and no change with its former state.
        where.add("t.revision <= %s::bigint", revision)
    if after:
        if kind.namespaced:
            where.add("(t.namespace, t.name) > (%s::text, %s::text)", *after)
        else:
            where.add("t.name > %s::text", after[1])
    no_overlay = "NULL::text, NULL::timestamptz, NULL::text, NULL::tstzrange"
    live_overlay = POD_OVERLAY if pods else no_overlay
    count = (limit or MAX_PAGE) + 1
    before = _Where()
    before.add("revision > %s::bigint AND kind = %s::int", revision, kind.code)
    # The first change in the log does not include what ended before the log begins.
    before.add("coalesce(previous_revision, 0) <= %s::bigint", revision)
    if namespace:
        before.add("namespace = %s", namespace)
    if after:
        before.add("(namespace, name) > (%s::text, %s::text)", *after)
    if listing.part:
        where.add("strpos(t.name, %s) > 0", listing.part)
        before.add("strpos(name, %s) > 0", listing.part)
    if listing.node_name is not None:
        before.add("coalesce(previous_node_name, '') = %s", listing.node_name)
    first = ""
    if limit and listing.after.past and not (labels.requirements or chosen):
        # No more of the log than a page may hold; then the number of following objects is unknown.
        before.add("previous_revision IS NOT NULL")
        first = f"ORDER BY c.namespace, c.name LIMIT {count}"
    statement = f"""
        (SELECT 0, {key}, d.text, t.revision, {live_overlay}
         FROM {kind.rows} t JOIN document d ON d.id = t.document_id
         WHERE {where.text()} ORDER BY {order} LIMIT %s)
        UNION ALL
        (SELECT r.verb, r.namespace, r.name, d.text, r.previous_revision, r.previous_node_name,
                r.previous_scheduled_at, r.previous_unschedulable, r.previous_eviction
         FROM (SELECT * FROM (SELECT DISTINCT ON (object_id) * FROM change
               WHERE {before.text()} ORDER BY object_id, revision) c {first}) r
         LEFT JOIN document d ON d.id = r.previous_document_id)
        UNION ALL
        (SELECT -1, '', '', NULL, trimmed_revision, {no_overlay} FROM history WHERE id = 1)
    """
    rows = sql.fetch(statement, [*where.parameters, count, *before.parameters])
    found: list[tuple[str, str, bytes]] = []
    earlier: list[tuple[str, str, bytes]] = []

    def matches(item: bytes) -> bool:
        if not listing.selects:
            return True
        manifest = _decoder.decode(item)
        own_labels = (manifest.get("metadata") or {}).get("labels") or {}
        return labels.matches(own_labels) and fields.matches(chosen, manifest)

    counts = not first
    compose = document.compose
    for tag, row_namespace, name, text, number, *columns in rows:
        if tag == 0:
            found.append(
                (
                    row_namespace,
                    name,
                    compose(text, number, pod_overlay(*columns)) if pods else compose(text, number),
                )
            )
        elif tag == -1:
            if number > revision:
                earlier += _packed(listing, number, matches)
                counts = False
        elif tag != changes.ADDED and not unlogged and number is not None:
            item = compose(text, number, pod_overlay(*columns))
            if matches(item):
                earlier.append((row_namespace, name, item))
    former = [entry[:2] for entry in earlier]
    if earlier:
        cut = found[-1][:2] if len(found) == count else None
        found += [entry for entry in earlier if cut is None or entry[:2] <= cut]
        found.sort(key=lambda entry: entry[:2])
    if limit and len(found) > limit:
        last = found[limit - 1][:2]
        current = "true" if unlogged else f"t.revision <= {revision}"

        def behind() -> int:
            return _count_behind(kind, namespace, last, current) + sum(key > last for key in former)

        items = [item for _, _, item in found[:limit]]
        return listing.page(items, last, behind if counts else None)
    if keeps:
        kept_lists.keep(kind, namespace, revision, found)
    return Page([item for _, _, item in found], revision)


def _packed(
    listing: _Listing, log: int, matches: Callable[[bytes], bool]
) -> list[tuple[str, str, bytes]]:
    """Return the versions at the list's revision that ended before the log begins.

    ``log``: the revision at which it begins.

    Raises:
        Expired: that is not known.
    """
    kind, revision = listing.kind, listing.revision
    try:
        past.require(revision)
        if not past.has_past(kind):
            raise Expired(_EXPIRED_CONTINUE)
        # With selectors it is unknown which of them are on the page.
        limit = None if listing.selects or listing.limit is None else listing.limit + 1
        found = past.versions_at(
            kind, revision, log,
            namespace=listing.namespace, after=listing.after.key, limit=limit, part=listing.part,
            node_name=listing.node_name,
        )  # fmt: skip
        past.require(revision)  # no part was dropped meanwhile
    except Expired as error:
        raise error if listing.after.past else Expired(_EXPIRED_CONTINUE) from None
    return [one for one in found if matches(one[2])]


def _count_behind(kind: Kind, namespace: str, last: tuple[str, str], current: str) -> int:
    """Return how many objects follow the key ``last``, up to one more than the counting limit."""
    where = _Where()
    where.add(current)
    if namespace:
        where.add("t.namespace = %s", namespace)
    if kind.namespaced:
        where.add("(t.namespace, t.name) > (%s::text, %s::text)", *last)
    else:
        where.add("t.name > %s::text", last[1])
    row = sql.fetch_one(
        f"SELECT count(*) FROM (SELECT 1 FROM {kind.rows} t WHERE {where.text()}"
        f" LIMIT {MAX_REMAINING + 1}) behind",
        where.parameters,
    )
    assert row is not None
    count: int = row[0]
    return count


def _list_events(listing: _Listing) -> Page:
    """Return events. One that was counted up since ``revision`` is shown as it is now."""
    kind, namespace, revision, limit = (
        listing.kind, listing.namespace, listing.revision, listing.limit
    )  # fmt: skip
    after = listing.after.key
    where = _matching_events(kind, namespace, listing.labels, listing.chosen)
    where.add("t.first_revision <= %s::bigint", revision)
    if after:
        where.add("(t.namespace, t.name) > (%s::text, %s::text)", *after)
    rows = sql.fetch(
        f"SELECT {EVENT_COLUMNS} FROM {EVENT_FROM} WHERE {where.text()}"
        " ORDER BY t.namespace, t.name LIMIT %s",
        [*where.parameters, (limit or MAX_PAGE) + 1],
    )
    items = [compose_event(row) for row in rows]
    if limit and len(rows) > limit:
        last = (rows[limit - 1][0], rows[limit - 1][1])

        def behind() -> int:
            return _count_behind(kind, namespace, last, f"t.first_revision <= {revision}")

        return listing.page(items[:limit], last, behind)
    return Page(items, revision)


class _Token(msgspec.Struct, frozen=True):
    """The content of a continue token."""

    rv: int
    start: tuple[str, str]
    remaining: int | None = None
    past: bool = False
    began: int = 0


def _write_token(after: _After) -> str:
    assert after.key is not None
    text = msgspec.json.encode(
        _Token(after.revision, after.key, after.remaining, after.past, after.began)
    )
    return base64.urlsafe_b64encode(text).decode()


def check_token(token: str) -> None:
    """Check the ``continue`` token of a list; an empty one is right.

    Raises:
        BadRequest: this service did not issue it.
    """
    if token:
        _read_token(token)


def _read_token(token: str) -> _After:
    try:
        value = msgspec.json.decode(base64.urlsafe_b64decode(token.encode()), type=_Token)
        if any("\0" in part for part in value.start):
            raise ValueError("no name holds a NUL character")
    except (ValueError, binascii.Error, msgspec.DecodeError):
        raise BadRequest("continue key is not valid: it was not given out by this server") from None
    return _After(value.rv, value.start, value.remaining, value.past, value.began)
