"""Policies: kinds, quotas with their use, who can do what, the scheduler's configuration."""

import difflib
from contextlib import suppress
from operator import eq
from typing import Final

import msgspec
from django.http import HttpRequest, HttpResponse

from api.console.page import layout, time_travel
from api.console.page.time_travel import PastMoment
from api.forms import pages
from clusterstate.access import authorizer
from clusterstate.access.rules import Attributes
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.registry.kinds import ALL_KINDS, KINDS
from clusterstate.objects.values.errors import BadRequest, Expired
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.numbers import natural
from clusterstate.objects.values.quantity import Quantity, QuantityError
from clusterstate.queries.objects import decode_object
from clusterstate.queries.objects.lists import list_page

_RBAC: Final = "rbac.authorization.k8s.io"
_MOST_SHOWN: Final = 200
"""The page shows at most this many objects of a kind, the most important ones."""
_MOST_READ: Final = 5000
"""At most so many objects of a kind are read, to choose the most important ones."""
_REVISIONS: Final = 50
_MOST_LINES: Final = 5000
_MOST_COMPARED: Final = 1000
"""At most so many lines, between the first and the last difference, are compared in detail: some
seconds at the worst."""
_MOST_ALIKE: Final = 12
_MOST_OF_ONE: Final = 2000
"""The longest runs of lines that are shown in full: equal lines, and lines of one text."""
_MEANS: Final = {" ": "unchanged", "-": "removed", "+": "added"}
_POLICIES: Final = (
    ("RuntimeClass", "the nodes and overhead of pods with a container runtime"),
    ("PriorityClass", "which pods preempt which"),
    ("ResourceQuota", "limits of a namespace, and what is used"),
    ("LimitRange", "defaults and bounds in a namespace"),
    ("PodDisruptionBudget", "how many pods may be unavailable"),
    ("Namespace", "a scope for names, roles and quotas"),
    ("ClusterRole", "permissions, in all namespaces"),
    ("ClusterRoleBinding", "who has a role everywhere"),
    ("Role", "permissions in a namespace"),
    ("RoleBinding", "who has a role in a namespace"),
)


@layout.shown_then
def page(request: HttpRequest) -> HttpResponse:
    """Return the policies, and every other kind that the person may list."""
    from scheduling.answers import questions

    def seen(kind: Kind) -> bool:
        return layout.sees(request, Attributes("list", kind.group, kind.plural))

    first = [(KINDS[name], about) for name, about in _POLICIES if seen(KINDS[name])]
    named = {name for name, _ in _POLICIES}
    others = sorted((k for k in ALL_KINDS if k.name not in named and seen(k)), key=_by_name)
    configuration = None
    if layout.may(request, "get", "schedulerconfiguration", group="stowage.dev"):
        past = time_travel.of(request)
        with suppress(Expired):  # the rest of the page may be known all the same
            configuration = questions.stored_configuration(None if past is None else past.at)
    is_now = time_travel.of(request) is None
    context = {
        "first": first,
        "others": others,
        "quotas": _quotas(request),
        "runtimes": _runtimes(request),
        "priorities": _priorities(request),
        "budgets": _budgets(request),
        "may_see_roles": layout.may(request, "list", "clusterroles", group=_RBAC),
        "may_grant": is_now and layout.sees(request, Attributes("create", _RBAC, "rolebindings")),
        "may_limit": is_now and layout.sees(request, Attributes("create", "", "resourcequotas")),
        "roles": [one["metadata"]["name"] for one in _all(request, "ClusterRole")]
        if layout.may(request, "list", "clusterroles", group=_RBAC)
        else ["view", "edit", "admin"],
        "configuration": configuration,
        "text": pages.as_yaml(configuration) if configuration else "",
    }
    return layout.page(request, "policies.html", "Policies", context)


def _by_name(kind: Kind) -> str:
    return kind.name


class QuotaUse(msgspec.Struct, frozen=True):
    """The share of a quota that is used, of one resource; ``share`` above 1: exceeded."""

    namespace: str
    name: str
    resource: str
    used: str
    hard: str
    share: float


def _quotas(request: HttpRequest) -> list[QuotaUse] | None:
    """Return the limits and the use of quotas, the fullest first. Queries twice.

    This and the following functions: ``None`` if the user may not list them.
    """
    if not layout.may(request, "list", "resourcequotas"):
        return None
    found = []
    for quota in _all(request, "ResourceQuota"):
        metadata, status = quota["metadata"], quota.get("status") or {}
        used = status.get("used") or {}
        for resource, hard in (status.get("hard") or quota["spec"].get("hard") or {}).items():
            amount = used.get(resource, "0")
            share = _share(amount, hard)
            found.append(
                QuotaUse(metadata["namespace"], metadata["name"], resource, amount, hard, share)
            )
    found.sort(key=lambda one: (-one.share, one.namespace, one.name, one.resource))
    return found[:_MOST_SHOWN]


class Runtime(msgspec.Struct, frozen=True):
    """A RuntimeClass and the nodes that its pods may use.

    ``query``: these nodes in the query language of lists, empty for all; ``nodes``: how many,
    ``None`` for people who may not list nodes.
    """

    name: str
    handler: str
    overhead: str
    query: str
    tolerates: str
    nodes: int | None


def _runtimes(request: HttpRequest) -> list[Runtime] | None:
    """Return the runtime classes with their nodes. Queries twice, and for the nodes."""
    if not layout.may(request, "list", "runtimeclasses", group="node.k8s.io"):
        return None
    classes = _all(request, "RuntimeClass")[:_MOST_SHOWN]
    sees_nodes = layout.may(request, "list", "nodes")
    # To read the nodes of a past moment takes a while: only if there is a class to show.
    fleet = time_travel.nodes(request) if classes and sees_nodes else []
    found = []
    for one in classes:
        scheduling = one.get("scheduling") or {}
        selector: dict[str, str] = scheduling.get("nodeSelector") or {}
        fixed = (one.get("overhead") or {}).get("podFixed") or {}
        fits = [node for node in fleet if selector.items() <= node.labels.items()]
        found.append(
            Runtime(
                one["metadata"]["name"],
                one.get("handler", ""),
                ", ".join(f"{amount} {resource}" for resource, amount in sorted(fixed.items())),
                " ".join(f"{key}={value}" for key, value in sorted(selector.items())),
                ", ".join(each.get("key") or "*" for each in scheduling.get("tolerations") or ()),
                len(fits) if sees_nodes else None,
            )
        )
    return found


def _priorities(request: HttpRequest) -> list[Manifest] | None:
    """Return the priority classes, the highest first. Queries twice."""
    if not layout.may(request, "list", "priorityclasses", group="scheduling.k8s.io"):
        return None
    found = _all(request, "PriorityClass")
    found.sort(key=lambda one: (-one.get("value", 0), one["metadata"]["name"]))
    return found[:_MOST_SHOWN]


def _budgets(request: HttpRequest) -> list[Manifest] | None:
    """Return the disruption budgets, those with the fewest allowed disruptions first."""
    if not layout.may(request, "list", "poddisruptionbudgets", group="policy"):
        return None

    def allowed(one: Manifest) -> tuple[int, str, str]:
        metadata = one["metadata"]
        disruptions = (one.get("status") or {}).get("disruptionsAllowed", 0)
        return disruptions, metadata["namespace"], metadata["name"]

    return sorted(_all(request, "PodDisruptionBudget"), key=allowed)[:_MOST_SHOWN]


def _all(request: HttpRequest, kind_name: str) -> list[Manifest]:
    """Return the first objects of a kind, at the moment of the page. Queries twice."""
    past: PastMoment | None = time_travel.of(request)
    at = None if past is None else past.revision
    return [decode_object(text) for text in list_page(kind_name, limit=_MOST_READ, at=at).items]


def _share(used: str, hard: str) -> float:
    try:
        part, whole = Quantity.parse(used).milli_value(), Quantity.parse(hard).milli_value()
    except QuantityError:
        return 0.0
    if whole <= 0:
        return 1.0 if part > 0 else 0.0
    return part / whole


@layout.shown
def who_can(request: HttpRequest) -> HttpResponse:
    """Return the subjects with a right, and the bindings that give it."""
    layout.require(request, "list", "clusterrolebindings", group=_RBAC)
    layout.require(request, "list", "rolebindings", group=_RBAC)
    layout.filters(request, "verb", "resource", "group", "namespace", "name")
    query = request.GET
    verb, resource = query.get("verb", "get").strip(), query.get("resource", "pods").strip()
    plural, _, subresource = resource.partition("/")
    wants = Attributes(
        verb, query.get("group", "").strip(), plural, subresource,
        namespace=query.get("namespace", "").strip(), name=query.get("name", "").strip(),
    )  # fmt: skip
    kinds = {(kind.group, kind.plural) for kind in ALL_KINDS}
    context = {
        "wants": wants,
        "resource": resource,
        "holders": authorizer.current().holders(wants),
        "verbs": ("get", "list", "watch", "create", "update", "patch", "delete"),
        "known": (wants.group, plural) in kinds,
        "groups": sorted({kind.group for kind in ALL_KINDS if kind.plural == plural}),
    }
    return layout.page(request, "who_can.html", "Who can", context)


class DifferenceLine(msgspec.Struct, frozen=True):
    """A line of a difference: ``sign`` is +, - or a space; … stands for omitted lines."""

    sign: str
    text: str


@layout.shown
def revisions(request: HttpRequest) -> HttpResponse:
    """Return the revisions of the scheduler's configuration, and the difference of two of them."""
    from scheduling.answers import questions

    layout.require(request, "get", "schedulerconfiguration", group="stowage.dev")
    stored = questions.configurations(limit=_REVISIONS)
    numbers = [one.revision for one in stored]
    new = number(request, "new") or (numbers[0] if numbers else 0)
    old = number(request, "old") or next((one for one in numbers if one < new), 0)
    context = {
        "stored": stored,
        "current": numbers[0] if numbers else 0,
        "new": new,
        "old": old,
        "lines": difference(_text(old), _text(new)) if stored else [],
    }
    return layout.page(request, "revisions.html", "Configuration revisions", context)


def number(request: HttpRequest, name: str) -> int:
    """Return the number of a revision in a query parameter, 0 if that is absent.

    Raises:
        BadRequest: it is no number.
    """
    text = request.GET.get(name, "")
    if not text:
        return 0
    found = natural(text)
    if found is None:
        raise BadRequest(f"{name}: must be the number of a revision")
    return found


def _text(revision: int) -> str:
    """Return a revision as YAML, nothing for revision 0.

    Raises:
        NotFound: there is no such revision.
    """
    from scheduling.answers import questions

    return pages.as_yaml(questions.configuration_of(revision)) if revision else ""


def difference(old: str, new: str) -> list[DifferenceLine]:
    """Return the lines of both texts, each marked by the text that has it.

    The middle of a long run of equal, added or removed lines is left out. If too many lines differ,
    they are not compared in detail, which may take minutes.
    """
    before, after = old.splitlines(), new.splitlines()
    found: list[DifferenceLine] = []
    for name, i, j, k, m in _parts(before, after):
        if name == "equal":
            found += _lines(" ", before[i:j])
        else:
            found += [*_lines("-", before[i:j]), *_lines("+", after[k:m])]
    return (
        found
        if len(found) <= _MOST_LINES
        else [*found[:_MOST_LINES], DifferenceLine("…", "and more")]
    )


def _parts(old: list[str], new: list[str]) -> list[tuple[str, int, int, int, int]]:
    """Return the changes from one list of lines to another, as ``SequenceMatcher.get_opcodes``."""
    same = list(map(eq, old, new))
    head = same.index(False) if False in same else len(same)
    rest = min(len(old), len(new)) - head
    tail = 0
    while tail < rest and old[-tail - 1] == new[-tail - 1]:
        tail += 1
    i, k, j, m = head, head, len(old) - tail, len(new) - tail
    parts = [("replace", i, j, k, m)]
    if max(j - i, m - k) <= _MOST_COMPARED:
        found = difflib.SequenceMatcher(None, old[i:j], new[k:m]).get_opcodes()
        parts = [(name, i + a, i + b, k + c, k + d) for name, a, b, c, d in found]
    return [("equal", 0, head, 0, head), *parts, ("equal", j, len(old), m, len(new))]


def _lines(sign: str, texts: list[str]) -> list[DifferenceLine]:
    most = _MOST_ALIKE if sign == " " else _MOST_OF_ONE
    left_out = len(texts) - most
    if left_out <= 1:
        return [DifferenceLine(sign, one) for one in texts]
    ends = most // 2
    first, last = texts[:ends], texts[-ends:]
    middle = DifferenceLine("…", f"{len(texts) - 2 * ends:,} {_MEANS[sign]} lines")
    return [
        *(DifferenceLine(sign, one) for one in first),
        middle,
        *(DifferenceLine(sign, one) for one in last),
    ]
