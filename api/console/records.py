"""What is kept: the audit log, and the objects of every served kind."""

import uuid
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from api import clock
from api.console import downloads, layout, merging, plan_forms, policies, time_travel
from api.console.time_travel import Then
from api.forms import bodies, pages, tables, wire
from api.stowage.audit_view import earlier, moment
from clusterstate.actions import objects
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.registry.kinds import ALL_KINDS, KINDS
from clusterstate.objects.values.errors import BadRequest, Conflict, NotFound, StatusError
from clusterstate.objects.values.meta import Manifest, strip_nulls
from clusterstate.objects.values.numbers import natural
from clusterstate.objects.wire import reading
from clusterstate.queries.objects import decode_object, get_manifest, not_found
from clusterstate.queries.objects.lists import list_page
from clusterstate.queries.past import find_at, has_past, trail
from clusterstate.queries.people import audit_log
from clusterstate.queries.people.audit_log import Search
from clusterstate.queries.scheduler import overview

_PER_PAGE: Final = 100
_AT_ONCE: Final = 2000
_MOST_EXPORTED: Final = 50_000
_BY_RESOURCE: Final = {(kind.group, kind.plural): kind for kind in ALL_KINDS}


@layout.shown_then
def audit(request: HttpRequest) -> HttpResponse:
    """Return the audit log: by who, what, object, answer, address, time or request.

    A request leads to its object's page, whose history tells what each change made of it. The log
    tells nobody of its lines: an open page asks for the newest ones every few seconds, unless what
    it looks for has no index, which reads up to the whole log.
    """
    layout.require(request, "list", "events", group="audit.k8s.io")
    query, past = request.GET, time_travel.of(request)
    wanted = Search(
        username=query.get("user", ""),
        verb=query.get("verb", ""),
        resource=query.get("resource", ""),
        namespace=query.get("ns", ""),
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
    lines, more = audit_log.search(wanted, limit=_PER_PAGE, before=number)
    here = request.get_full_path()
    context = {
        "lines": [_line(msgspec.json.decode(line)) for line in lines],
        "given": query,
        "asks_again": "" if past is not None or number or _reads_all(wanted) else here,
        "after": "?" + urlencode({**query.dict(), "before": more}) if more else "",
    }
    if layout.is_part(request):
        return layout.part(request, "audit_rows.html", context)
    return layout.page(request, "audit.html", "Audit", context)


def _reads_all(wanted: Search) -> bool:
    """Return whether a search may read the whole log: lines are found by user and request alone."""
    if wanted.audit_id is not None:
        return False
    words = (wanted.verb, wanted.resource, wanted.namespace, wanted.name, wanted.address)
    return any((*words, wanted.code, wanted.since, wanted.until))


def _line(event: Manifest) -> Manifest:
    """Return an event with the address of its object's page, empty where there is none."""
    about = event.get("objectRef") or {}
    kind = _BY_RESOURCE.get((about.get("apiGroup", ""), about.get("resource", "")))
    name, namespace = about.get("name", ""), about.get("namespace", "")
    is_known = kind is not None and name and bool(namespace) == kind.namespaced
    return {**event, "address": _address(kind, namespace, name) if kind and is_known else ""}


def _uuid(text: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(text) if text else None
    except ValueError:
        raise BadRequest(f"request: {text} is no audit id") from None


def _kind(name: str) -> Kind:
    if name not in KINDS:
        raise BadRequest(f"there is no kind {name} here")
    return KINDS[name]


def _place(kind_name: str, namespace: str, name: str) -> tuple[Kind, str]:
    """Return the kind and the namespace that an address names, empty where it says ``-``.

    Raises:
        NotFound: an object that lies in no namespace is asked for in one, where a role in that
            namespace would give the right to it.
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
    namespace = request.GET.get("ns", "") if kind.namespaced else ""
    layout.require(request, "list", kind.plural, group=kind.group, namespace=namespace)
    table, token = _table(request, kind, namespace, request.GET.get("continue", ""))
    context = {
        "kind": kind,
        "columns": table.columns,
        "rows": [(space, _address(kind, space, one), cells) for space, one, cells in table.rows],
        "namespace": namespace,
        "selector": request.GET.get("l", ""),
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
    namespace = request.GET.get("ns", "") if kind.namespaced else ""
    layout.require(request, "list", kind.plural, group=kind.group, namespace=namespace)
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
        label_selector=request.GET.get("l", ""),
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
    metadata = {k: v for k, v in manifest["metadata"].items() if k != "managedFields"}
    text = pages.as_yaml({**manifest, "metadata": metadata})
    problems: list[tuple[str, str]] = []
    status = 200
    if request.method == "POST":
        layout.require(request, "update", kind.plural, **about)
        given = request.POST.get("text", "").replace("\r\n", "\n")
        try:
            _save(kind, manifest, given, request)
        except Conflict as error:
            status = error.code
            text, problems = _put_together(kind, manifest, given, error, since)
        except StatusError as error:
            problems, text, status = problems_of(error), given, error.code
        else:
            return HttpResponseRedirect(request.get_full_path())
    context = {
        "kind": kind,
        "namespace": namespace,
        "name": name,
        "text": text,
        "problems": problems,
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
        raise NotFound(f"revision {revision} is no change of this object, or is kept no more")
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
        "lines": policies.difference(_told(before), _told(after)),
        "may_audit": layout.may(request, "list", "events", group="audit.k8s.io"),
    }
    return layout.page(request, "difference.html", f"{kind.name} {name}: a change", context)


def _told(text: bytes | None) -> str:
    """Return an object as YAML, without what changes along with everything; nothing for none."""
    if text is None:
        return ""
    manifest = decode_object(text)
    left_out = ("managedFields", "resourceVersion")
    metadata = {key: one for key, one in manifest["metadata"].items() if key not in left_out}
    return pages.as_yaml({**manifest, "metadata": metadata})


def _put_together(
    kind: Kind, stored: Manifest, given: str, error: Conflict, since: int
) -> tuple[str, list[tuple[str, str]]]:
    """Return a text with what a person edited and what others changed meanwhile, and words on it.

    Nothing is saved by that: the person looks at it, and saves again. Where the version that the
    person began with is not known any more, or lies before the revision ``since``, the text stays
    as it is.
    """
    try:
        mine = read_yaml(given)
        version = natural(str(bodies.metadata_of(mine).get("resourceVersion", "")))
        if version is None or version < since:
            return given, problems_of(error)
        space, name = stored["metadata"].get("namespace", ""), stored["metadata"]["name"]
        began = find_at(kind, space, name, version)
    except StatusError:
        return given, problems_of(error)
    if began is None:
        return given, problems_of(error)
    merged = merging.merge(decode_object(began), mine, stored)
    words = [("", "Somebody else changed this object meanwhile. Nothing is saved yet; save again.")]
    words += [(path, "was changed by others, and is taken over") for path in merged.taken]
    for clash in merged.clashes:
        theirs = "removed" if clash.theirs is None else f"set to {clash.theirs}"
        words.append((clash.path, f"was {theirs} by others; yours stays in the text"))
    return pages.as_yaml(merged.manifest), words


def _manifest_of(kind: Kind, namespace: str, name: str, past: Then | None) -> Manifest:
    """Return an object, as it was then.

    Raises:
        NotFound: there is, or was, none. Expired: the kind has no past, or that is not known.
    """
    if past is None:
        return get_manifest(kind, namespace, name)
    text = find_at(kind, namespace, name, past.revision)
    if text is None:
        raise not_found(kind, name)
    return decode_object(text)


def problems_of(error: StatusError) -> list[tuple[str, str]]:
    """Return what is wrong: the field's path, empty for the whole, and words, each."""
    causes = error.details.get("causes") or ()
    return [(one.get("field", ""), one["message"]) for one in causes] or [("", error.message)]


def _save(kind: Kind, shown: Manifest, text: str, request: HttpRequest) -> None:
    """Replace an object by what a text says, checked like the body of a PUT.

    A field that the kind does not have is refused, unless the object has it already.
    """
    namespace, name = shown["metadata"].get("namespace", ""), shown["metadata"]["name"]
    wanted, unknown = wire.manifest(read_yaml(text), kind)
    metadata = bodies.metadata_of(wanted)
    if not metadata.get("resourceVersion"):
        raise Conflict("metadata.resourceVersion must stay: it says which version is replaced")
    if metadata.get("name") != name:
        raise BadRequest("metadata.name cannot be changed: this page is of one object")
    bodies.put_namespace(metadata, namespace)
    known = set(wire.validate_fields(shown, kind, ""))
    if more := [one for one in unknown if one not in known]:
        raise BadRequest(", ".join(more))

    def change(stored: Any) -> Any:
        managed = stored["metadata"].get("managedFields")
        more = {"managedFields": managed} if managed else {}
        return {**wanted, "metadata": {**metadata, **more}}

    objects.update(kind, namespace, name, change, now=clock.now(), user=layout.user_of(request))


def read_yaml(text: str) -> Any:
    """Return the object in a text.

    Raises:
        BadRequest: it is no YAML, or no object, or gives a field twice; the sentence says where.
    """
    raw = text.encode()
    found = reading.read_yaml(raw)
    if not isinstance(found, dict):
        raise BadRequest("this is no object: it must begin with apiVersion, kind and metadata")
    reading.refuse_repeated_keys(raw)
    return strip_nulls(found)
