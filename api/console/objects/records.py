"""The audit log, the feed of changes, and the objects of every served kind."""

import uuid
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from api import clock
from api.console.objects import merging
from api.console.page import downloads, layout, time_travel
from api.console.page.time_travel import PastMoment
from api.console.page.yaml_input import problems_of, read_yaml
from api.console.plans import plan_forms
from api.console.scheduler import policies
from api.forms import bodies, options, pages, tables, wire
from api.stowage.audit_view import earlier, moment
from clusterstate.actions import objects
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.registry.kinds import ALL_KINDS, KINDS
from clusterstate.objects.values.errors import (
    BadRequest,
    Conflict,
    Expired,
    Forbidden,
    NotFound,
    StatusError,
)
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.numbers import natural
from clusterstate.queries.objects import decode_object, get_manifest, not_found
from clusterstate.queries.objects.lists import list_page
from clusterstate.queries.past import feed, find_at, has_past, reach, revision_at, trail
from clusterstate.queries.people import audit_log
from clusterstate.queries.people.audit_log import Search
from clusterstate.queries.scheduler import overview

_MINUTES: Final = 5
_MOST_CHANGED: Final = 500
_PER_PAGE: Final = 100
_AT_ONCE: Final = 2000
_MOST_EXPORTED: Final = 50_000
_AUDIT_FILTERS: Final = (
    "user", "verb", "resource", "namespace", "name", "code", "address", "since", "until", "request",
)  # fmt: skip
_BY_RESOURCE: Final = {(kind.group, kind.plural): kind for kind in ALL_KINDS}


@layout.shown_then
def audit(request: HttpRequest) -> HttpResponse:
    """Return the page of the audit log, searched by user, action, object, answer or address.

    Each line links to its object's page, whose history shows the change. New lines are not
    announced: an open page requests them every few seconds, unless its search has no index and may
    read the whole log.
    """
    layout.require(request, "list", "events", group="audit.k8s.io")
    layout.filters(request, *_AUDIT_FILTERS)
    query, past = request.GET, time_travel.of(request)
    filters = Search(
        username=query.get("user", ""),
        verb=query.get("verb", ""),
        resource=query.get("resource", ""),
        namespace=query.get("namespace", ""),
        name=query.get("name", ""),
        code=natural(query.get("code", ""), digits=3),
        address=query.get("address", "").strip(),
        audit_id=_uuid(query.get("request", "")),
        since=moment(query.get("since", "").strip(), "since"),
        until=earlier(
            moment(query.get("until", "").strip(), "until"), None if past is None else past.at
        ),
    )
    number = natural(query.get("before", "")) or 0
    lines, more = audit_log.search(filters, limit=_PER_PAGE, before=number)
    here = request.get_full_path()
    context = {
        "lines": [_line(msgspec.json.decode(line)) for line in lines],
        "given": query,
        "asks_again": "" if past is not None or number or _reads_all(filters) else here,
        "after": "?" + urlencode({**query.dict(), "before": more}) if more else "",
    }
    if layout.is_part(request):
        return layout.part(request, "audit_rows.html", context)
    return layout.page(request, "audit.html", "Audit", context)


@layout.shown
def changes(request: HttpRequest) -> HttpResponse:
    """Return the page of changes around a moment: user, kind and number of objects by minute.

    ``time``: the middle of the span, by default now; ``minutes``: on each side of it.
    """
    layout.filters(request, "time", "minutes", "kind", "namespace", "user")
    query, now = request.GET, clock.now()
    namespace, kind = layout.scope(request, "list", "pods"), query.get("kind", "").strip()
    minutes = min(natural(query.get("minutes", ""), digits=3) or _MINUTES, 60)
    text = query.get("time", "").strip()
    middle = options.time_of(text, "time", now=now) if text else now
    begins, ends = (min(middle + timedelta(minutes=one), now) for one in (-minutes, minutes))
    kinds = [
        one.name
        for one in ([_kind(kind)] if kind else ALL_KINDS)
        if layout.may(request, "list", one.plural, group=one.group, namespace=namespace)
    ]
    log = reach().log
    if namespace:  # a right in a namespace covers no former namespace of that name
        log = max(log, layout.since(request, "pods", namespace=namespace))
        if not layout.may(request, "list", "secrets"):
            kinds = [one for one in kinds if one != "Secret"]
    after, until = (max(_revision_at(one, now), log) for one in (begins, ends))
    found = feed.feed(
        after, until, kinds=kinds, namespace=namespace, actor=query.get("user", "").strip(),
        limit=_MOST_CHANGED,
    )  # fmt: skip
    context = {
        "given": query.dict(),
        "minutes": minutes,
        "rows": [(one, [_named(KINDS[one.kind], *each) for each in one.examples]) for one in found],
        "begins": begins,
        "ends": ends,
        "is_kept": until > log,
        "may_audit": layout.may(request, "list", "events", group="audit.k8s.io"),
    }
    return layout.page(request, "changes.html", "Changes", context)


def _revision_at(moment: datetime, now: datetime) -> int:
    """Return the revision at a moment, 0 before the first one that is known."""
    try:
        return revision_at(moment, now=now)
    except Expired:
        return 0


def _named(kind: Kind, namespace: str, name: str) -> tuple[str, str]:
    """Return an object's name as a list shows it, and the address of its page."""
    return (f"{namespace}/{name}" if namespace else name), _address(kind, namespace, name)


def _reads_all(filters: Search) -> bool:
    """Return whether a search may read the whole log: only user and request have an index."""
    if filters.audit_id is not None:
        return False
    words = (filters.verb, filters.resource, filters.namespace, filters.name, filters.address)
    return any((*words, filters.code, filters.since, filters.until))


def _line(event: Manifest) -> Manifest:
    """Return an event with the address of its object's page, empty where there is none."""
    about = event.get("objectRef") or {}
    kind = _BY_RESOURCE.get((about.get("apiGroup", ""), about.get("resource", "")))
    name, namespace = about.get("name", ""), about.get("namespace", "")
    is_known = kind is not None and name and bool(namespace) == kind.namespaced
    notes = event.get("annotations") or {}
    tried = notes.get("stowage.dev/sign-in", ""), notes.get("stowage.dev/username", "")
    address = _address(kind, namespace, name) if kind and is_known else ""
    return {**event, "address": address, "sign_in": tried if tried[0] else ()}


def _uuid(text: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(text) if text else None
    except ValueError:
        raise BadRequest(f"request: {text} is not an audit ID") from None


def _kind(name: str) -> Kind:
    if name not in KINDS:
        raise BadRequest(f"this service has no kind {name}")
    return KINDS[name]


def _place(kind_name: str, namespace: str, name: str) -> tuple[Kind, str]:
    """Return the kind and the namespace in an address; ``-`` is no namespace.

    Raises:
        NotFound: the address names a namespace although the kind has none; otherwise a role in
            that namespace would give the right to the object.
    """
    kind = _kind(kind_name)
    namespace = "" if namespace == "-" else namespace
    if namespace and not kind.namespaced:
        raise not_found(kind, name)
    return kind, namespace


@layout.shown_then
def objects_of(request: HttpRequest, name: str) -> HttpResponse:
    """Return the objects of a kind as ``kubectl get`` prints them."""
    kind = _kind(name)
    layout.filters(request, "labelSelector", *(["namespace"] if kind.namespaced else []))
    namespace = layout.scope(request, "list", kind.plural, group=kind.group)
    table, token = _table(request, kind, namespace, request.GET.get("continue", ""))
    context = {
        "kind": kind,
        "columns": table.columns,
        "rows": [(space, _address(kind, space, one), cells) for space, one, cells in table.rows],
        "namespace": namespace,
        "selector": request.GET.get("labelSelector", ""),
        "after": "?" + urlencode({**request.GET.dict(), "continue": token}) if token else "",
        "query": request.GET.urlencode(),
        "may_create": layout.may(
            request, "create", kind.plural, group=kind.group, namespace=namespace
        ),
    }
    if layout.is_part(request):
        return layout.part(request, "objects_rows.html", context)
    return layout.page(request, "objects.html", kind.list_kind.removesuffix("List"), context)


@layout.shown_then
def objects_csv(request: HttpRequest, name: str) -> HttpResponse:
    """Return the objects of a kind as CSV, 50,000 at most."""
    kind = _kind(name)
    layout.filters(request, "labelSelector", *(["namespace"] if kind.namespaced else []))
    namespace = layout.scope(request, "list", kind.plural, group=kind.group)
    rows: list[Any] = []
    token = ""
    while True:
        table, token = _table(request, kind, namespace, token, limit=_AT_ONCE)
        rows += [(space, *cells) if kind.namespaced else cells for space, _, cells in table.rows]
        if not token or len(rows) >= _MOST_EXPORTED:
            break
    titles = ["Namespace", *table.columns] if kind.namespaced else table.columns
    return downloads.as_csv(kind.plural, titles, rows[:_MOST_EXPORTED])


class _Table(msgspec.Struct, frozen=True):
    """A page of objects: titles, and each one's namespace, name and cells."""

    columns: list[str]
    rows: list[tuple[str, str, list[Any]]]


def _table(
    request: HttpRequest, kind: Kind, namespace: str, token: str, *, limit: int = _PER_PAGE
) -> tuple[_Table, str]:
    """Return a page of the objects that the address asks for, and the token of the next one."""
    past = time_travel.of(request)
    found = list_page(
        kind,
        namespace,
        label_selector=request.GET.get("labelSelector", ""),
        limit=limit,
        continue_token=token,
        at=None if past is None or token else past.revision,
    )
    now = clock.now() if past is None else past.at
    printer = tables.printer(kind)
    shown = [at for at, column in enumerate(printer.columns) if not column.priority]
    rows = []
    for text in found.items:
        item = decode_object(text)
        cells = printer.cells(item, now)
        metadata = item["metadata"]
        space = metadata.get("namespace", "")
        rows.append((space, metadata["name"], [cells[at] for at in shown]))
    return _Table([printer.columns[at].name for at in shown], rows), found.continue_token


def _address(kind: Kind, namespace: str, name: str) -> str:
    if kind.name == "Node":
        return reverse("console:node", args=(name,))
    if kind.name == "Pod":
        return reverse("console:pod", args=(namespace, name))
    return reverse("console:object", args=(kind.name, namespace or "-", name))


@layout.shown_then
def object_of(request: HttpRequest, kind_name: str, namespace: str, name: str) -> HttpResponse:
    """Return an object with its YAML, which can be edited; its history and events.

    What is saved replaces the version that the page showed: another person's change meanwhile is a
    conflict, and the text comes back with both changes.
    """
    kind, namespace = _place(kind_name, namespace, name)
    about = {"group": kind.group, "namespace": namespace, "name": name}
    layout.require(request, "get", kind.plural, **about)
    past = time_travel.of(request)
    since = layout.since(request, kind.plural, **about)
    manifest = _manifest_of(kind, namespace, name, past)
    earlier_version = natural(request.GET.get("version", ""))
    if earlier_version is not None:
        if earlier_version < since:
            raise not_found(kind, name)
        manifest = _as_it_was(kind, manifest, earlier_version)
    metadata = {k: v for k, v in manifest["metadata"].items() if k != "managedFields"}
    text = pages.as_yaml({**manifest, "metadata": metadata})
    problems: list[tuple[str, str]] = []
    status = 200
    if request.method == "POST":
        layout.require(request, "update", kind.plural, **about)
        edited = request.POST.get("text", "").replace("\r\n", "\n")
        try:
            _save(kind, manifest, edited, request)
        except Conflict as error:
            status = error.code
            text, problems = _put_together(kind, manifest, edited, error, since)
        except StatusError as error:
            problems, text, status = problems_of(error), edited, error.code
        else:
            return HttpResponseRedirect(request.path)
    context = {
        "kind": kind,
        "namespace": namespace,
        "name": name,
        "text": text,
        "problems": problems,
        "version": earlier_version,
        "rows": min(40, text.count("\n") + 2),
        "history": (kind.name, namespace or "-", name),
        "steps": time_travel.steps(kind, namespace, name, past, limit=20, since=since),
        "events": overview.events_of(kind.name, namespace, name, limit=20)
        if past is None and layout.may(request, "list", "events", namespace=namespace)
        else [],
        "may_change": layout.may(request, "update", kind.plural, **about),
        "replicas": (manifest.get("spec") or {}).get("replicas", 1)
        if kind.name in plan_forms.SCALED
        and layout.may(request, "patch", kind.plural, subresource="scale", **about)
        else None,
        "as_api": pages.path_of(kind, namespace, name),
    }
    return layout.page(request, "object.html", f"{kind.name} {name}", context, status=status)


@layout.shown
def create(request: HttpRequest) -> HttpResponse:
    """Create any object from YAML; the parameters give a first text: a kind, a role, a quota.

    The text is validated like the body of a POST; errors are shown at their fields.
    """
    text, problems, status = pages.as_yaml(_begun(request)), list[tuple[str, str]](), 200
    address, warnings = "", list[str]()
    if request.method == "POST":
        text = request.POST.get("text", "").replace("\r\n", "\n")
        try:
            kind, manifest = _parsed(text)
            metadata = bodies.metadata_of(manifest)
            namespace = (metadata.get("namespace") or "default") if kind.namespaced else ""
            bodies.put_namespace(metadata, namespace)
            layout.require(request, "create", kind.plural, group=kind.group, namespace=namespace)
            user = layout.user_of(request)
            stored = objects.create(kind, namespace, manifest, now=clock.now(), user=user)
        except Forbidden:
            raise
        except StatusError as error:
            problems, status = problems_of(error), error.code
        else:
            name = decode_object(stored.manifest)["metadata"]["name"]
            address, warnings = _address(kind, namespace, name), stored.warnings
            if not warnings:
                return HttpResponseRedirect(address)
    context = {
        "text": text,
        "problems": problems,
        "rows": min(40, text.count("\n") + 2),
        "made": address,
        "warnings": warnings,
    }
    return layout.page(request, "create.html", "New object", context, status=status)


def _parsed(text: str) -> tuple[Kind, Manifest]:
    """Return the kind and the manifest of a text.

    Raises:
        BadRequest: it is no object, or its kind is unknown or lacks one of the fields.
    """
    found = read_yaml(text)
    kind = _kind(str(found.get("kind") or ""))
    manifest, unknown = wire.manifest(found, kind)
    if unknown:
        raise BadRequest(", ".join(unknown))
    return kind, manifest


def _begun(request: HttpRequest) -> Manifest:
    """Return the manifest that a new object begins with.

    ``kind``, ``namespace`` and ``name`` as they are; of a binding ``role`` (a ClusterRole) and
    ``subject`` (``Group:NAME`` or ``User:NAME``); of a quota ``hard`` (``cpu=4``) several times.
    """
    query = request.GET
    texts = {name: query.get(name, "").strip() for name in ("namespace", "name", "role", "subject")}
    kind = _kind(query.get("kind") or "ConfigMap")
    if kind.name == "RoleBinding" and not texts["namespace"]:
        kind = KINDS["ClusterRoleBinding"]
    metadata = {"name": texts["name"]}
    if kind.namespaced:
        metadata["namespace"] = texts["namespace"] or "default"
    found: Manifest = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata}
    if kind.name.endswith("RoleBinding"):
        what, _, who = texts["subject"].partition(":")
        group = "rbac.authorization.k8s.io"
        metadata["name"] = texts["name"] or f"{who}-{texts['role']}".replace(":", "-")
        role = {"apiGroup": group, "kind": "ClusterRole", "name": texts["role"]}
        subject = {"apiGroup": group, "kind": what, "name": who}
        return {**found, "roleRef": role, "subjects": [subject]}
    if kind.name == "ResourceQuota":
        pairs = (one.partition("=") for one in query.getlist("hard"))
        return {**found, "spec": {"hard": {key: value for key, _, value in pairs if value}}}
    return found if kind.name in ("ConfigMap", "Secret") else {**found, "spec": {}}


@layout.shown
def difference(
    request: HttpRequest, kind_name: str, namespace: str, name: str, revision: int
) -> HttpResponse:
    """Return what one change made of an object: its YAML before and after, line by line."""
    kind, namespace = _place(kind_name, namespace, name)
    about = {"group": kind.group, "namespace": namespace, "name": name}
    layout.require(request, "get", kind.plural, **about)
    if revision >= 1 << 62 or revision < layout.since(request, kind.plural, **about):
        raise not_found(kind, name)
    found = trail.trail_of(kind, namespace, name, limit=1, before=revision).steps
    if not found or found[0].revision != revision:
        raise NotFound(f"revision {revision} did not change this object, or is no longer retained")
    before, after = (
        find_at(kind, namespace, name, one) if has_past(kind) else None
        for one in (revision - 1, revision)
    )
    context = {
        "kind": kind,
        "namespace": namespace,
        "name": name,
        "address": _address(kind, namespace, name),
        "step": found[0],
        "is_kept": has_past(kind),
        "lines": policies.difference(_yaml(before), _yaml(after)),
        "may_audit": layout.may(request, "list", "events", group="audit.k8s.io"),
        "rolls_back": _rolls_back(request, kind, namespace, name, revision)
        if before is not None and after is not None
        else "",
    }
    return layout.page(request, "difference.html", f"{kind.name} {name}: a change", context)


def _rolls_back(request: HttpRequest, kind: Kind, namespace: str, name: str, revision: int) -> str:
    """Return the address that edits an object back to before a change, if the person may.

    Not for pods, whose spec is immutable, nor for nodes: their form previews an edit.
    """
    about = {"group": kind.group, "namespace": namespace, "name": name}
    if kind.name in ("Pod", "Node") or not layout.may(request, "update", kind.plural, **about):
        return ""
    place = reverse("console:object", args=(kind.name, namespace or "-", name))
    return f"{place}?version={revision - 1}"


def _yaml(text: bytes | None) -> str:
    """Return an object as YAML, without metadata that every change touches; empty for ``None``."""
    if text is None:
        return ""
    manifest = decode_object(text)
    left_out = ("managedFields", "resourceVersion")
    metadata = {key: one for key, one in manifest["metadata"].items() if key not in left_out}
    return pages.as_yaml({**manifest, "metadata": metadata})


def _put_together(
    kind: Kind, stored: Manifest, edited: str, error: Conflict, since: int
) -> tuple[str, list[tuple[str, str]]]:
    """Return a text with the person's edit and the changes of others merged, and notes on it.

    Nothing is saved: the person reviews the text and saves again. If the version with which the
    person began is unknown now, or older than the revision ``since``, the text stays unchanged.
    """
    try:
        mine = read_yaml(edited)
        version = natural(str(bodies.metadata_of(mine).get("resourceVersion", "")))
        if version is None or version < since:
            return edited, problems_of(error)
        space, name = stored["metadata"].get("namespace", ""), stored["metadata"]["name"]
        began = find_at(kind, space, name, version)
    except StatusError:
        return edited, problems_of(error)
    if began is None:
        return edited, problems_of(error)
    merged = merging.merge(decode_object(began), mine, stored)
    words = [("", "Somebody else changed this object meanwhile. Nothing is saved yet; save again.")]
    words += [
        (path, "changed by somebody else; the text shows the new value") for path in merged.adopted
    ]
    for clash in merged.clashes:
        theirs = "removed" if clash.theirs is None else f"set to {clash.theirs}"
        words.append((clash.path, f"somebody else {theirs}; the text keeps your value"))
    return pages.as_yaml(merged.manifest), words


def _manifest_of(kind: Kind, namespace: str, name: str, past: PastMoment | None) -> Manifest:
    """Return an object, now or at a past moment.

    Raises:
        NotFound: it does or did not exist. Expired: its past is not known.
    """
    if past is None:
        return get_manifest(kind, namespace, name)
    text = find_at(kind, namespace, name, past.revision)
    if text is None:
        raise not_found(kind, name)
    return decode_object(text)


def _as_it_was(kind: Kind, manifest: Manifest, revision: int) -> Manifest:
    """Return an object as at a revision, as an edit of its present version: to roll back.

    Its status, and the metadata that the system writes, stay the present ones.

    Raises:
        NotFound: it did not exist at that revision. Expired: that is not known any more.
    """
    metadata = manifest["metadata"]
    text = find_at(kind, metadata.get("namespace", ""), metadata["name"], revision)
    if text is None:
        raise not_found(kind, metadata["name"])
    was = decode_object(text)
    ours = ("labels", "annotations")
    chosen = {key: one for key, one in was["metadata"].items() if key in ours}
    present = {key: one for key, one in metadata.items() if key not in ours}
    status = {"status": manifest["status"]} if "status" in manifest else {}
    was = {key: one for key, one in was.items() if key not in ("metadata", "status")}
    return {**was, "metadata": {**present, **chosen}, **status}


def _save(kind: Kind, shown: Manifest, text: str, request: HttpRequest) -> None:
    """Replace an object by the YAML that the person edited, checked like the body of a PUT.

    A field that the kind does not have is refused, unless the object has it already.
    """
    namespace, name = shown["metadata"].get("namespace", ""), shown["metadata"]["name"]
    edited, unknown = wire.manifest(read_yaml(text), kind)
    metadata = bodies.metadata_of(edited)
    if not metadata.get("resourceVersion"):
        raise Conflict("metadata.resourceVersion is missing: it says which version you edited")
    if metadata.get("name") != name:
        raise BadRequest("metadata.name cannot be changed: this page edits one object")
    bodies.put_namespace(metadata, namespace)
    present = set(wire.validate_fields(shown, kind, ""))
    if more := [one for one in unknown if one not in present]:
        raise BadRequest(", ".join(more))

    def change(stored: Any) -> Any:
        managed = stored["metadata"].get("managedFields")
        more = {"managedFields": managed} if managed else {}
        return {**edited, "metadata": {**metadata, **more}}

    objects.update(kind, namespace, name, change, now=clock.now(), user=layout.user_of(request))
