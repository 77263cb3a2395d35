"""What is kept: the audit log, and the objects of every served kind."""

import uuid
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from api import bodies, clock, pages, tables, wire
from api.console import frame
from clusterstate.access import authorizer, people
from clusterstate.access.rules import Attributes
from clusterstate.actions import objects
from clusterstate.objects import reading
from clusterstate.objects.errors import BadRequest, Conflict, StatusError
from clusterstate.objects.kind import Kind
from clusterstate.objects.kinds import ALL_KINDS, KINDS
from clusterstate.objects.meta import Manifest, strip_nulls
from clusterstate.queries import audit_log, overview, trail
from clusterstate.queries.audit_log import Search
from clusterstate.queries.lists import list_page
from clusterstate.queries.objects import decode_object, get_manifest

_PER_PAGE: Final = 100
_MOST: Final = 500
_POLICIES: Final = (
    ("RuntimeClass", "which nodes a handler's pods may use, and what they cost on top"),
    ("PriorityClass", "who makes room for whom"),
    ("ResourceQuota", "what a namespace may ask for, and asks for"),
    ("LimitRange", "defaults and bounds in a namespace"),
    ("PodDisruptionBudget", "how many may leave at once"),
    ("Namespace", ""),
    ("ClusterRole", "what may be done"),
    ("ClusterRoleBinding", "by whom, everywhere"),
    ("Role", "what may be done in a namespace"),
    ("RoleBinding", "by whom"),
)


@frame.shown
def audit(request: HttpRequest) -> HttpResponse:
    """Return the audit log: by user, verb, resource, namespace, name, code or request."""
    frame.require(request, "list", "events", group="audit.k8s.io")
    query = request.GET
    code = query.get("code", "")
    before = query.get("before", "")
    wanted = Search(
        username=query.get("user", ""),
        verb=query.get("verb", ""),
        resource=query.get("resource", ""),
        namespace=query.get("ns", ""),
        name=query.get("name", ""),
        code=int(code) if code.isascii() and code.isdigit() and len(code) < 4 else None,
        audit_id=_uuid(query.get("request", "")),
    )
    number = int(before) if before.isascii() and before.isdigit() and len(before) < 19 else 0
    lines, more = audit_log.search(wanted, limit=_PER_PAGE, before=number)
    context = {
        "lines": [msgspec.json.decode(line) for line in lines],
        "given": query,
        "after": "?" + urlencode({**query.dict(), "before": more}) if more else "",
    }
    return frame.page(request, "audit.html", "Audit", context)


def _uuid(text: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(text) if text else None
    except ValueError:
        raise BadRequest(f"request: {text} is no audit id") from None


@frame.shown
def policies(request: HttpRequest) -> HttpResponse:
    """Return the policies, and every other kind that the person may list."""
    from scheduling.answers import questions

    user = people.user_of(request.user)

    def seen(kind: Kind) -> bool:
        wants = Attributes("list", kind.group, kind.plural)
        return authorizer.decide(user, wants).allowed

    first = [(KINDS[name], about) for name, about in _POLICIES if seen(KINDS[name])]
    named = {name for name, _ in _POLICIES}
    others = sorted((k for k in ALL_KINDS if k.name not in named and seen(k)), key=_by_name)
    configuration = None
    if frame.may(request, "get", "schedulerconfiguration", group="stowage.dev"):
        configuration = questions.stored_configuration()
    context = {
        "first": first,
        "others": others,
        "configuration": configuration,
        "text": pages.as_yaml(configuration) if configuration else "",
    }
    return frame.page(request, "policies.html", "Policies", context)


def _by_name(kind: Kind) -> str:
    return kind.name


def _kind(name: str) -> Kind:
    if name not in KINDS:
        raise BadRequest(f"there is no kind {name} here")
    return KINDS[name]


@frame.shown
def objects_of(request: HttpRequest, name: str) -> HttpResponse:
    """Return the objects of a kind as ``kubectl get`` prints them."""
    kind = _kind(name)
    namespace = request.GET.get("ns", "") if kind.namespaced else ""
    frame.require(request, "list", kind.plural, group=kind.group, namespace=namespace)
    selector = request.GET.get("l", "")
    found = list_page(
        kind,
        namespace,
        label_selector=selector,
        limit=_PER_PAGE,
        continue_token=request.GET.get("continue", ""),
    )
    now = clock.now()
    printer = tables.printer(kind)
    shown = [at for at, column in enumerate(printer.columns) if not column.priority]
    rows = []
    for text in found.items:
        item = decode_object(text)
        cells = printer.cells(item, now)
        metadata = item["metadata"]
        address = _address(kind, metadata.get("namespace", ""), metadata["name"])
        rows.append((metadata.get("namespace", ""), address, [cells[at] for at in shown]))
    token = found.continue_token
    context = {
        "kind": kind,
        "columns": [printer.columns[at].name for at in shown],
        "rows": rows,
        "namespace": namespace,
        "selector": selector,
        "after": "?" + urlencode({**request.GET.dict(), "continue": token}) if token else "",
        "may_create": frame.may(
            request, "create", kind.plural, group=kind.group, namespace=namespace
        ),
    }
    if frame.is_part(request):
        return frame.part(request, "objects_rows.html", context)
    return frame.page(request, "objects.html", kind.list_kind.removesuffix("List"), context)


def _address(kind: Kind, namespace: str, name: str) -> str:
    if kind.name == "Node":
        return reverse("console:node", args=(name,))
    if kind.name == "Pod":
        return reverse("console:pod", args=(namespace, name))
    return reverse("console:object", args=(kind.name, namespace or "-", name))


@frame.shown
def object_of(request: HttpRequest, kind_name: str, namespace: str, name: str) -> HttpResponse:
    """Return an object with its YAML, which can be edited; its history and events.

    What is saved replaces the version that the page showed: another person's change meanwhile is a
    conflict, and the text stays.
    """
    kind = _kind(kind_name)
    namespace = "" if namespace == "-" else namespace
    about = {"group": kind.group, "namespace": namespace, "name": name}
    frame.require(request, "get", kind.plural, **about)
    manifest = get_manifest(kind, namespace, name)
    metadata = {k: v for k, v in manifest["metadata"].items() if k != "managedFields"}
    text = pages.as_yaml({**manifest, "metadata": metadata})
    problems: list[tuple[str, str]] = []
    status = 200
    if request.method == "POST":
        frame.require(request, "update", kind.plural, **about)
        given = request.POST.get("text", "").replace("\r\n", "\n")
        try:
            _save(kind, manifest, given, request)
        except StatusError as error:
            problems, text, status = _problems(error), given, error.code
        else:
            return HttpResponseRedirect(request.get_full_path())
    context = {
        "kind": kind,
        "namespace": namespace,
        "name": name,
        "text": text,
        "problems": problems,
        "rows": min(40, text.count("\n") + 2),
        "steps": trail.trail_of(kind, namespace, name, limit=20).steps,
        "events": overview.events_of(kind.name, namespace, name, limit=20)
        if frame.may(request, "list", "events", namespace=namespace)
        else [],
        "may_change": frame.may(request, "update", kind.plural, **about),
        "as_api": pages.path_of(kind, namespace, name),
    }
    return frame.page(request, "object.html", f"{kind.name} {name}", context, status=status)


def _problems(error: StatusError) -> list[tuple[str, str]]:
    causes = error.details.get("causes") or ()
    return [(one["field"], one["message"]) for one in causes] or [("", error.message)]


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

    objects.update(kind, namespace, name, change, now=clock.now(), user=frame.user_of(request))


def read_yaml(text: str) -> Any:
    """Return the object in a text.

    Raises:
        BadRequest: it is no YAML, or no object; the sentence says where.
    """
    found = reading.read_yaml(text.encode())
    if not isinstance(found, dict):
        raise BadRequest("this is no object: it must begin with apiVersion, kind and metadata")
    return strip_nulls(found)
