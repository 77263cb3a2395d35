"""Every kind of read as every kind of identity, held against what roles and bindings say.

The expected answer comes from the policy alone, by attributes that are written here and not taken
from the request's path; the answer comes from the views. A read that is allowed may find nothing.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from django.contrib.auth.models import User as Person
from django.test import Client

from clusterstate.access import authorizer
from clusterstate.access.rules import Attributes
from clusterstate.admission.request import User
from clusterstate.objects.registry.kinds import ALL_KINDS
from tests.api.builders import pod
from tests.api.conftest import Api, make_token
from tests.api.serve import Server
from tests.api.test_dry_run import collection

pytestmark = pytest.mark.django_db(transaction=True)

RBAC = "/apis/rbac.authorization.k8s.io/v1"
OWN = "/apis/stowage.dev/v1"
EVERYBODY = "system:authenticated"
NS = "/api/v1/namespaces/ns"

EXACT = "resourceVersion=1&resourceVersionMatch=Exact"

Read = tuple[str, tuple[Attributes, ...]]

IDENTITIES: dict[str, tuple[str, ...]] = {
    "root": ("system:masters",),
    "reader": ("stowage:readers",),
    "operator": ("stowage:operator",),
    "administrator": ("stowage:administrator",),
    "monitor": ("system:monitoring",),
    "viewer-of-ns": ("people",),
    "editor-of-ns": ("people",),
    "admin-of-ns": ("people",),
    "viewer-of-other": ("people",),
    "by-name": ("people",),
    "questions-alone": ("people",),
    "nobody": ("people",),
    "system:node:n1": ("system:nodes",),
}
BOUND = {
    "viewer-of-ns": ("view", "ns"),
    "editor-of-ns": ("edit", "ns"),
    "admin-of-ns": ("admin", "ns"),
    "viewer-of-other": ("view", "other"),
    "by-name": ("by-name", "ns"),
    "questions-alone": ("questions", ""),
}


@pytest.fixture
def cluster(api: Api) -> Api:
    make_token("nobody", ["people"])  # and the default roles
    api.post("/api/v1/namespaces", {"metadata": {"name": "other"}}).ok(201)
    rules = [
        {"apiGroups": [""], "resources": ["configmaps", "secrets", "pods"],
         "resourceNames": ["x"], "verbs": ["get", "list", "watch"]},
    ]  # fmt: skip
    api.post(f"{RBAC}/clusterroles", {"metadata": {"name": "by-name"}, "rules": rules}).ok(201)
    verbs = ["get", "list", "watch", "create"]
    rules = [{"apiGroups": ["stowage.dev"], "resources": ["*"], "verbs": verbs}]
    api.post(f"{RBAC}/clusterroles", {"metadata": {"name": "questions"}, "rules": rules}).ok(201)
    for user, (role, namespace) in BOUND.items():
        subject = {"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}
        ref = {"kind": "ClusterRole", "name": role, "apiGroup": subject["apiGroup"]}
        body = {"metadata": {"name": user}, "roleRef": ref, "subjects": [subject]}
        path = f"namespaces/{namespace}/rolebindings" if namespace else "clusterrolebindings"
        api.post(f"{RBAC}/{path}", body).ok(201)
    return api


def of_kinds() -> Iterator[Read]:
    """Yield lists and reads of every kind and of what can be read below it, now and of then."""
    for kind in ALL_KINDS:
        space = "ns" if kind.namespaced else ""
        many = collection(kind)

        def wants(verb: str, subresource: str = "", name: str = "", at: str = space) -> Attributes:
            return Attributes(verb, kind.group, kind.plural, subresource, at, name)  # noqa: B023

        own = "x" if kind.name == "Namespace" else space
        got = (wants("get", name="x", at=own),)
        yield many, (wants("list"),)
        yield f"{many}?at=1s", (wants("list"),)
        yield f"{many}?{EXACT}", (wants("list"),)
        yield f"{many}?fieldSelector=metadata.name%3Dx", (wants("list", name="x"),)
        yield f"{many}/x", got
        yield f"{many}/x?at=1s", got
        yield f"{many}/x?{EXACT}", got
        if kind.namespaced:
            yield many.replace("/namespaces/ns", ""), (wants("list", at=""),)
        for one in ("status", "scale"):
            if one in kind.subresources:
                yield f"{many}/x/{one}", (wants("get", one, "x", own),)


def of_our_own() -> Iterator[Read]:
    """Yield what is asked for under ``stowage.dev`` and what stands below Kubernetes' objects."""
    for plural in ("evictions", "waitingpods", "selections", "plans", "brakes", "canaries"):
        yield f"{OWN}/{plural}", (Attributes("list", "stowage.dev", plural),)
    for plural in ("evictions", "waitingpods", "selections"):
        wants = Attributes("list", "stowage.dev", plural, namespace="ns")
        yield f"{OWN}/namespaces/ns/{plural}", (wants,)
    wants = Attributes("get", "stowage.dev", "schedulerconfiguration")
    yield f"{OWN}/schedulerconfiguration", (wants,)
    yield f"{OWN}/zones", (Attributes("list", resource="nodes"),)
    yield f"{OWN}/audit", (Attributes("list", "audit.k8s.io", "events"),)
    decisions = Attributes("get", "", "pods", "decisions", "ns", "x")
    yield f"{NS}/pods/x/decisions", (decisions,)
    yield f"{OWN}/decisions?namespace=ns", (Attributes("get", "", "pods", "decisions", "ns"),)
    yield f"{OWN}/decisions", (Attributes("get", "", "pods", "decisions"),)
    for kind, group, plural in (("Pod", "", "pods"), ("Deployment", "apps", "deployments")):
        wants = Attributes("get", group, plural, namespace="ns", name="x")
        yield f"{OWN}/changes?kind={kind}&namespace=ns&name=x", (wants,)
    yield f"{OWN}/changes?kind=Node&name=x", (Attributes("get", resource="nodes", name="x"),)
    for path in ("/metrics", "/openapi/v2", "/version", "/apis"):
        yield path, (Attributes("get", path=path),)


def _of_the_past(path: str) -> bool:
    return "?at=" in path or EXACT in path


def expected(user: User, read: Read) -> bool:
    """Return whether a read may be answered, by the policy and by what docs/access.md adds."""
    path, wanted = read
    if not all(authorizer.decide(user, one).allowed for one in wanted):
        return False
    (one, *_) = wanted
    kind = (one.group, one.resource)
    if _of_the_past(path) and kind == (
        "",
        "secrets",
    ):  # only who reads all of them reads former ones
        everywhere = Attributes(one.verb, *kind, name=one.name)
        return authorizer.decide(user, everywhere).allowed
    # An agent gets its own pods, and is not told whether there are others.
    is_agent = user.name.startswith("system:node:")
    return not (is_agent and kind == ("", "pods") and one.name)


@pytest.mark.parametrize("name", IDENTITIES)
def test_nobody_reads_more_or_less_than_roles_say(cluster: Api, name: str) -> None:
    groups = IDENTITIES[name]
    user = User(name=name, groups=(*groups, EVERYBODY))
    one = Api(make_token(name, list(groups)))
    wrong = []
    reads = [*of_kinds(), *of_our_own()]
    assert len(reads) > 160
    for read in reads:
        status = one.get(read[0]).status
        assert status != 500, read
        may = expected(user, read)
        # A moment before all that is kept is told to nobody, whatever the right (410).
        refused = status in (403, 410) if _of_the_past(read[0]) and not may else status == 403
        if refused is may:
            wrong.append((read[0], status))
    assert wrong == []


def questions() -> Iterator[tuple[str, dict[str, Any], tuple[Attributes, ...]]]:
    """Yield questions that are posted and store nothing, some of which name objects."""
    lists = [Attributes("list", resource=one) for one in ("nodes", "pods")]
    named = {"Pod": ("", "pods"), "Secret": ("", "secrets"), "Deployment": ("apps", "deployments")}
    gone = {kind: {"kind": kind, "namespace": "ns", "name": "x"} for kind in named}

    def asks(plural: str, **spec: Any) -> tuple[str, dict[str, Any], Attributes]:
        kind = {"plans": "Plan", "nodeadvice": "NodeAdvice"}.get(plural, plural[:-1].title())
        kind = "Headroom" if plural == "headroom" else kind
        body = {"apiVersion": "stowage.dev/v1", "kind": kind, "spec": spec}
        query = "?dryRun=All" if plural == "plans" else ""
        return f"{OWN}/{plural}{query}", body, Attributes("create", "stowage.dev", plural)

    unnamed = {**pod("new"), "metadata": {"generateName": "new-"}}
    path, body, wants = asks("simulations", pods=[unnamed])
    yield path, body, (wants,)
    # Else the answer would tell whether there is a pod of that name. Who may create one may ask,
    # too; of these identities nobody may who may not get pods.
    path, body, wants = asks("simulations", pods=[pod("new")])
    yield path, body, (wants, Attributes("get", "", "pods", namespace="default", name="new"))
    path, body, wants = asks("headroom", pod=pod("new"))
    yield path, body, (wants,)
    path, body, wants = asks("nodeadvice", catalogue=[])
    yield path, body, (wants,)
    path, body, wants = asks("nodeadvice", catalogue=[], prices=[])
    yield path, body, (wants, *lists)
    path, body, wants = asks("plans", changes=[{"cordon": {"nodes": ["n"]}}])
    yield path, body, (wants, *lists)
    for kind, (group, plural) in named.items():
        got = Attributes("get", group, plural, namespace="ns", name="x")
        path, body, wants = asks("simulations", pods=[unnamed], delete=[gone[kind]])
        yield path, body, (wants, got)
        path, body, wants = asks("headroom", pod=pod("new"), delete=[gone[kind]])
        yield path, body, (wants, got)
    for change, got in (
        ({"evict": {"pods": ["ns/x"]}}, Attributes("get", "", "pods", namespace="ns", name="x")),
        (
            {"scale": {"kind": "Deployment", "namespace": "ns", "name": "x", "replicas": 1}},
            Attributes("get", "apps", "deployments", namespace="ns", name="x"),
        ),
    ):
        path, body, wants = asks("plans", changes=[change])
        yield path, body, (wants, *lists, got)


@pytest.mark.parametrize("name", IDENTITIES)
def test_nobody_asks_about_more_or_less_than_roles_say(cluster: Api, name: str) -> None:
    groups = IDENTITIES[name]
    user = User(name=name, groups=(*groups, EVERYBODY))
    one = Api(make_token(name, list(groups)))
    wrong = []
    for path, body, wanted in questions():
        status = one.post(path, body).status
        assert status != 500, path
        may = all(authorizer.decide(user, wants).allowed for wants in wanted)
        if (status == 403) is may:
            wrong.append((path, body["spec"], status))
    assert wrong == []


def test_a_stranger_reads_nothing(cluster: Api) -> None:
    stranger = Api("")
    for path, _ in (*of_kinds(), *of_our_own()):
        assert stranger.get(path).status == 401, path


WATCHED = (
    ("pods", "/api/v1/namespaces/ns/pods", Attributes("watch", resource="pods", namespace="ns")),
    ("all pods", "/api/v1/pods", Attributes("watch", resource="pods")),
    ("secrets", f"{NS}/secrets", Attributes("watch", resource="secrets", namespace="ns")),
    ("nodes", "/api/v1/nodes", Attributes("watch", resource="nodes")),
)


@pytest.mark.parametrize(
    ("path", "wants"), [one[1:] for one in WATCHED], ids=[w[0] for w in WATCHED]
)
def test_nobody_watches_more_or_less(
    cluster: Api, server: Server, path: str, wants: Attributes
) -> None:
    for name, groups in IDENTITIES.items():
        token = make_token(name, list(groups))
        user = User(name=name, groups=(*groups, EVERYBODY))
        may = authorizer.decide(user, wants).allowed
        found = server.ask("GET", f"{path}?watch=1&timeoutSeconds=1", token)
        assert found[0] == (200 if may else 403), (name, path)
    assert server.ask("GET", f"{path}?watch=1&timeoutSeconds=1")[0] == 401


PAGES: dict[str, Any] = {
    "/console/nodes/": Attributes("list", resource="nodes"),
    "/console/pods/": Attributes("list", resource="pods"),
    "/console/pods/?namespace=ns": Attributes("list", resource="pods", namespace="ns"),
    "/console/pods/ns/x/": Attributes("get", resource="pods", namespace="ns", name="x"),
    "/console/evictions/": Attributes("list", "stowage.dev", "evictions"),
    "/console/audit/": Attributes("list", "audit.k8s.io", "events"),
    "/console/decisions/": Attributes("get", resource="pods", subresource="decisions"),
    "/console/objects/Secret/ns/x/": Attributes(
        "get", resource="secrets", namespace="ns", name="x"
    ),
    "/console/objects/ConfigMap/ns/x/": Attributes(
        "get", resource="configmaps", namespace="ns", name="x"
    ),
}


OF_ONES_OWN = {"/console/pods/", "/console/decisions/"}
"""Pages that show a person who may not see all namespaces one of those that they may see."""


@pytest.mark.parametrize("name", [one for one in IDENTITIES if not one.startswith("system:")])
def test_pages_of_the_console_follow_the_same_roles(cluster: Api, name: str) -> None:
    groups = tuple(one for one in IDENTITIES[name] if not one.startswith("system:"))
    user = User(name=name, groups=(*groups, EVERYBODY))
    person, _ = Person.objects.get_or_create(username=name)
    for group in groups:
        person.groups.add(person.groups.model.objects.get_or_create(name=group)[0])
    browser = Client(HTTP_ACCEPT="text/html")
    browser.force_login(person, backend="django.contrib.auth.backends.ModelBackend")
    for path, wants in PAGES.items():
        status = browser.get(path).status_code
        may = authorizer.decide(user, wants).allowed
        if path in OF_ONES_OWN:
            own = [msgspec.structs.replace(wants, namespace=one) for one in ("ns", "other")]
            may = may or any(authorizer.decide(user, one).allowed for one in own)
        assert (status != 403) is may, (path, status)
