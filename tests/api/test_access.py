"""Roles enforced on requests; acting for others; reviews. Rules: RBAC of v1.36."""

import pytest

from clusterstate.access import authorizer
from clusterstate.actions.cluster import default_roles
from clusterstate.objects.wire.protobuf import decode, encode
from tests.api.builders import binding as bind_body
from tests.api.builders import node, pod
from tests.api.conftest import APPLY, Api, make_token, names
from tests.clock import NOW

pytestmark = pytest.mark.django_db(transaction=True)

RBAC = "/apis/rbac.authorization.k8s.io/v1"
PODS = "/api/v1/namespaces/ns/pods"
REVIEWS = "/apis/authorization.k8s.io/v1"
WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


@pytest.fixture
def ann(api):
    """Somebody without a role."""
    return Api(make_token("ann", ["team"]))


def role(name, *rules):
    return {"metadata": {"name": name}, "rules": list(rules)}


def rule(verbs, resources, groups=("",), **more):
    return {
        "verbs": verbs.split(), "resources": resources.split(), "apiGroups": list(groups), **more,
    }  # fmt: skip


def bound(name, to, *users, kind="ClusterRole", group=""):
    subjects = [{"kind": "User", "name": user} for user in users]
    if group:
        subjects.append({"kind": "Group", "name": group})
    return {
        "metadata": {"name": name}, "roleRef": {"kind": kind, "name": to}, "subjects": subjects,
    }  # fmt: skip


def give(api, verbs, resources, *, namespace="ns", user="ann", **more):
    """Let a user do that, in a namespace or (empty) everywhere."""
    name = f"r{abs(hash((verbs, resources, namespace)))}"
    api.post(f"{RBAC}/clusterroles", role(name, rule(verbs, resources, **more))).ok(201)
    place = f"namespaces/{namespace}/rolebindings" if namespace else "clusterrolebindings"
    api.post(f"{RBAC}/{place}", bound(name, name, user)).ok(201)


# ------------------------------------------------------------------------------ requests


def test_a_right_that_came_and_went_while_the_roles_were_read_is_not_remembered(
    api, ann, monkeypatch
):
    """What is read is remembered as what it is, not as the tables looked a moment before."""
    real = authorizer._glance

    def glance_before_the_right_comes():
        monkeypatch.setattr(authorizer, "_glance", real)
        seen = real()
        give(api, "list", "pods")
        return seen

    ann.get(PODS).fails(403, "Forbidden")
    monkeypatch.setattr(authorizer._memory, "until", 0.0)
    monkeypatch.setattr(authorizer, "_glance", glance_before_the_right_comes)
    monkeypatch.setattr(authorizer._memory, "policy", None)
    ann.get(PODS).ok()
    for kind in ("clusterroles", "namespaces/ns/rolebindings"):
        (name,) = [one for one in names(api.get(f"{RBAC}/{kind}")) if one.startswith("r")]
        api.delete(f"{RBAC}/{kind}/{name}").ok()
    ann.get(PODS).fails(403, "Forbidden")


def test_without_a_right_the_refusal_is_in_kubernetes_words(ann):
    status = ann.get(PODS).fails(403, "Forbidden")
    assert status["message"] == (
        'pods is forbidden: User "ann" cannot list resource "pods" in API group "" in the namespace'
        ' "ns"'
    )
    status = ann.get("/apis/apps/v1/deployments").fails(403, "Forbidden")
    assert status["message"] == (
        'deployments.apps is forbidden: User "ann" cannot list resource "deployments" in API group'
        ' "apps" at the cluster scope'
    )
    status = ann.post(f"{PODS}/p/binding", bind_body("p", "n")).fails(403, "Forbidden")
    assert status["message"] == (
        'pods "p" is forbidden: User "ann" cannot create resource "pods/binding" in API group ""'
        ' in the namespace "ns"'
    )
    status = ann.get("/metrics").fails(403, "Forbidden")
    assert status["message"] == 'forbidden: User "ann" cannot get path "/metrics"'


def test_a_right_holds_from_the_next_request_and_ends_with_its_binding(api, ann):
    give(api, "list", "pods")
    ann.get(PODS).ok()
    ann.get("/api/v1/pods").fails(403, "Forbidden")
    ann.get("/api/v1/namespaces/default/pods").fails(403, "Forbidden")
    ann.get(f"{PODS}/p").fails(403, "Forbidden")
    api.delete(f"{RBAC}/namespaces/ns/rolebindings").ok()
    ann.get(PODS).fails(403, "Forbidden")


def test_a_changed_role_holds_from_the_next_request(api, ann):
    give(api, "list", "pods")
    ann.get(PODS).ok()
    (one,) = [
        found for found in api.get(f"{RBAC}/clusterroles").ok()["items"]
        if found["metadata"]["name"].startswith("r")
    ]  # fmt: skip
    path = f"{RBAC}/clusterroles/{one['metadata']['name']}"
    api.patch(path, {"rules": [rule("get", "pods")]}).ok()
    ann.get(PODS).fails(403, "Forbidden")
    ann.get(f"{PODS}/p").fails(404, "NotFound")


SUBRESOURCES = {
    "pods/binding create": ("POST", f"{PODS}/p/binding"),
    "pods/eviction create": ("POST", f"{PODS}/p/eviction"),
    "pods/status patch": ("PATCH", f"{PODS}/p/status"),
    "pods/status update": ("PUT", f"{PODS}/p/status"),
    "pods/decisions get": ("GET", f"{PODS}/p/decisions"),
    "bindings create": ("POST", "/api/v1/namespaces/ns/bindings"),
    "deployments/scale patch": ("PATCH", "/apis/apps/v1/namespaces/ns/deployments/p/scale"),
    "deployments/scale get": ("GET", "/apis/apps/v1/namespaces/ns/deployments/p/scale"),
    "nodes/status patch": ("PATCH", "/api/v1/nodes/p/status"),
    "namespaces/finalize update": ("PUT", "/api/v1/namespaces/p/finalize"),
    "pods deletecollection": ("DELETE", PODS),
    "pods delete": ("DELETE", f"{PODS}/p"),
    "pods update": ("PUT", f"{PODS}/p"),
    "pods patch": ("PATCH", f"{PODS}/p"),
    "pods create": ("POST", PODS),
    "pods get": ("GET", f"{PODS}/p"),
    "pods list": ("GET", PODS),
    "nodes list": ("GET", "/api/v1/nodes"),
}


@pytest.mark.parametrize("name", sorted(SUBRESOURCES))
def test_each_verb_and_subresource_is_a_right_of_its_own(api, ann, name):
    method, path = SUBRESOURCES[name]
    resource, verb = name.split()
    main = resource.partition("/")[0]
    group = "apps" if main == "deployments" else ""
    others = {"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
    give(api, " ".join(sorted(others - {verb})), f"{resource} {main}", namespace="", groups=[group])
    if "/" in resource:
        give(api, "*", main, namespace="", groups=[group])
    body = None if method in ("GET", "DELETE") else {}
    ann.call(method, path, body).fails(403, "Forbidden")
    give(api, verb, resource, namespace="", groups=[group])
    assert ann.call(method, path, body).status != 403


def test_a_rule_with_names_is_for_these_alone_also_in_lists(api, ann):
    for name in ("a", "b"):
        api.post(PODS, pod(name)).ok(201)
    give(api, "get list watch delete deletecollection", "pods", resourceNames=["a"])
    ann.get(f"{PODS}/a").ok()
    ann.get(f"{PODS}/b").fails(403, "Forbidden")
    ann.get(PODS).fails(403, "Forbidden")
    listed = ann.get(f"{PODS}?fieldSelector=metadata.name%3Da").ok()["items"]
    assert [one["metadata"]["name"] for one in listed] == ["a"]
    for selector in (
        "metadata.name%3Db", "metadata.name!%3Da", "spec.nodeName!%3Dx%5C,metadata.name%3Da",
        "spec.nodeName%3D", "",
    ):  # fmt: skip
        ann.get(f"{PODS}?fieldSelector={selector}").fails(403, "Forbidden")
        ann.delete(f"{PODS}?fieldSelector={selector}").fails(403, "Forbidden")


def test_an_apply_that_creates_needs_both_rights(api, ann):
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "b"}}
    path = "/api/v1/namespaces/ns/configmaps/c?fieldManager=t"
    give(api, "patch get", "configmaps")
    ann.patch(path, body, content_type=APPLY).fails(403, "Forbidden")
    give(api, "create", "configmaps")
    ann.patch(path, body, content_type=APPLY).ok(201)


def test_a_list_of_mixed_kinds_needs_a_right_for_each(api, ann):
    give(api, "create", "configmaps")
    maps = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "ns"}}
    secret = {**maps, "kind": "Secret"}
    ann.post("/api/v1", {"kind": "List", "apiVersion": "v1", "items": [maps, secret]}).fails(
        403, "Forbidden"
    )
    assert api.get("/api/v1/namespaces/ns/configmaps/c").status == 404


def test_default_roles_give_what_they_say(api):
    default_roles.reconcile(now=NOW)
    people = {}
    for name in ("view", "edit", "admin"):
        people[name] = Api(make_token(name, ["team"]))
        api.post(f"{RBAC}/namespaces/ns/rolebindings", bound(name, name, name)).ok(201)
    config = {"metadata": {"name": "c"}}
    secrets = "/api/v1/namespaces/ns/secrets"
    roles = f"{RBAC}/namespaces/ns/roles"
    table = {
        ("GET", PODS): ("view", "edit", "admin"),
        ("GET", f"{PODS}/p/decisions"): ("view", "edit", "admin"),
        ("GET", secrets): ("edit", "admin"),
        ("POST", "/api/v1/namespaces/ns/configmaps"): ("edit", "admin"),
        ("GET", roles): ("admin",),
        ("POST", f"{PODS}/p/eviction"): ("edit", "admin"),
        ("POST", f"{PODS}/p/binding"): (),
        ("PATCH", f"{PODS}/p/status"): (),
        ("GET", "/api/v1/nodes"): (),
        ("GET", "/api/v1/pods"): (),
        ("GET", "/api/v1/namespaces/default/pods"): (),
        ("POST", "/api/v1/namespaces/ns/resourcequotas"): (),
    }
    for (method, path), who in table.items():
        body = None if method == "GET" else config
        found = {n for n, one in people.items() if one.call(method, path, body).status != 403}
        assert found == set(who), (method, path)


def test_groups_of_tokens_may_what_they_always_might(api, reader):
    api.post("/api/v1/nodes", node("n")).ok(201)
    for path in (
        PODS, "/api/v1/nodes", "/apis/apps/v1/deployments", "/apis/stowage.dev/v1/evictions", "/",
        "/apis/stowage.dev/v1/schedulerconfiguration", "/apis/stowage.dev/v1/zones",
        "/apis/stowage.dev/v1/nodes/n/usage", "/version", "/openapi/v2", "/apis/apps/v1", "/api",
    ):  # fmt: skip
        reader.get(path).ok()
    reader.get("/metrics").fails(403, "Forbidden")
    reader.get("/api/v1/secrets").fails(403, "Forbidden")
    reader.post(PODS, pod("p")).fails(403, "Forbidden")
    simulated = reader.post("/apis/stowage.dev/v1/simulations", {})
    assert simulated.status not in (401, 403), "what would happen is asked, not done"
    monitor = Api(make_token("prom", ["system:monitoring"]))
    assert monitor.get("/metrics").status == 200
    monitor.get(PODS).fails(403, "Forbidden")


def test_somebody_without_a_role_learns_what_is_served_and_who_they_are(ann):
    for path in ("/api", "/apis", "/api/v1", "/apis/apps", "/version", "/openapi/v2", "/"):
        ann.get(path).ok()
    ann.post(f"{REVIEWS}/selfsubjectaccessreviews", allowed_to("get", "pods")).ok(201)
    ann.post(f"{REVIEWS}/subjectaccessreviews", {"spec": {"user": "x"}}).fails(403, "Forbidden")


# --------------------------------------------------------------------------- escalation


def test_nobody_writes_a_role_with_more_than_they_have(api, ann):
    group = ["rbac.authorization.k8s.io"]
    give(api, "create update patch", "roles rolebindings", groups=group)
    give(api, "get list", "pods")
    roles = f"{RBAC}/namespaces/ns/roles"
    ann.post(roles, role("small", rule("get", "pods"))).ok(201)
    status = ann.post(roles, role("big", rule("get delete", "pods"))).fails(403, "Forbidden")
    assert status["message"] == (
        'roles.rbac.authorization.k8s.io "big" is forbidden: user "ann" (groups=["team"'
        ' "system:authenticated"]) is attempting to grant RBAC permissions not currently held:\n'
        '{APIGroups:[""], Resources:["pods"], Verbs:["delete"]}'
    )
    grown = {"rules": [rule("*", "*", ["*"])]}
    ann.patch(f"{roles}/small", grown).fails(403, "Forbidden")
    ann.patch(f"{roles}/small?dryRun=All", grown).fails(403, "Forbidden")
    assert api.get(f"{roles}/small").ok()["rules"] == [rule("get", "pods")]
    give(api, "escalate", "roles", groups=group)
    ann.patch(f"{roles}/small", grown).ok()


def test_nobody_binds_a_role_with_more_than_they_have(api, ann):
    default_roles.reconcile(now=NOW)
    group = ["rbac.authorization.k8s.io"]
    give(api, "create update patch", "rolebindings", groups=group)
    give(api, "get list", "pods")
    bindings = f"{RBAC}/namespaces/ns/rolebindings"
    status = ann.post(bindings, bound("me", "cluster-admin", "ann")).fails(403, "Forbidden")
    assert "is attempting to grant RBAC permissions not currently held" in status["message"]
    ann.post(bindings, bound("me", "nothing", "ann")).fails(404, "NotFound")
    api.post(f"{RBAC}/clusterroles", role("small", rule("get", "pods"))).ok(201)
    ann.post(bindings, bound("bob", "small", "bob")).ok(201)
    ann.patch(f"{bindings}/bob", {"metadata": {"labels": {"a": "b"}}}).ok()
    give(api, "bind", "clusterroles", groups=group, resourceNames=["edit"])
    ann.post(bindings, bound("edit", "edit", "bob")).ok(201)
    ann.post(bindings, bound("admin", "admin", "bob")).fails(403, "Forbidden")


def test_only_who_may_everything_makes_a_role_that_aggregates(api, ann):
    group = ["rbac.authorization.k8s.io"]
    give(api, "create", "clusterroles", namespace="", groups=group)
    chosen = {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}
    body = {"metadata": {"name": "all"}, "aggregationRule": chosen}
    status = ann.post(f"{RBAC}/clusterroles", body).fails(403, "Forbidden")
    assert "must have cluster-admin privileges to use an aggregationRule" in status["message"]
    api.post(f"{RBAC}/clusterroles", body).ok(201)


# ------------------------------------------------------------------------ acting for others


def test_acting_for_another_is_being_that_user(api, ann):
    give(api, "list", "pods")
    api.post(PODS, pod("p")).ok(201)
    as_ann = {"HTTP_IMPERSONATE_USER": "ann"}
    api.get(PODS, **as_ann).ok()
    status = api.get("/api/v1/nodes", **as_ann).fails(403, "Forbidden")
    assert 'User "ann" cannot list resource "nodes"' in status["message"]
    info = api.post(WHO, {}, HTTP_IMPERSONATE_USER="x", HTTP_IMPERSONATE_GROUP="a,b",
                    HTTP_IMPERSONATE_UID="7", HTTP_IMPERSONATE_EXTRA_SCOPES="z")  # fmt: skip
    # The default roles let everybody ask.
    assert info.ok(201)["status"]["userInfo"] == {
        "username": "x", "groups": ["a", "b", "system:authenticated"], "uid": "7",
        "extra": {"scopes": ["z"]},
    }  # fmt: skip
    account = api.post(WHO, {}, HTTP_IMPERSONATE_USER="system:serviceaccount:ns:robot").ok(201)
    assert account["status"]["userInfo"]["groups"] == [
        "system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("headers", "resource"),
    [
        ({}, "users"),
        ({"HTTP_IMPERSONATE_GROUP": "system:masters"}, "groups"),
        ({"HTTP_IMPERSONATE_UID": "1"}, "uids"),
        ({"HTTP_IMPERSONATE_EXTRA_A": "1"}, "userextras/a"),
    ],
)
def test_acting_for_another_is_a_right_for_each_part(api, ann, headers, resource):
    headers = {"HTTP_IMPERSONATE_USER": "bob", **headers}
    if resource != "users":
        give(api, "impersonate", "users", namespace="", resourceNames=["bob"])
    status = ann.get("/version", **headers).fails(403, "Forbidden")
    assert f'User "ann" cannot impersonate resource "{resource}"' in status["message"]
    groups = ["", "authentication.k8s.io"]
    give(api, "impersonate", f"{resource} users", namespace="", groups=groups)
    ann.get("/version", **headers).ok()


def test_half_a_description_of_a_user_is_refused(api):
    api.get("/version", HTTP_IMPERSONATE_GROUP="team").fails(400, "BadRequest")
    api.get("/version", HTTP_IMPERSONATE_USER="").fails(400, "BadRequest")
    api.get("/version", HTTP_IMPERSONATE_USER="a", HTTP_IMPERSONATE_ODD="b").fails(
        400, "BadRequest"
    )


def test_a_service_account_is_acted_for_by_its_own_right(api, ann):
    give(api, "impersonate", "users", namespace="")
    account = {"HTTP_IMPERSONATE_USER": "system:serviceaccount:ns:robot"}
    status = ann.get("/version", **account).fails(403, "Forbidden")
    assert status["message"] == (
        'serviceaccounts "robot" is forbidden: User "ann" cannot impersonate resource'
        ' "serviceaccounts" in API group "" in the namespace "ns"'
    )
    give(api, "impersonate", "serviceaccounts")
    ann.get("/version", **account).ok()


# ----------------------------------------------------------------------------- reviews


def allowed_to(verb, resource, *, kind="SelfSubjectAccessReview", **more):
    spec = {"resourceAttributes": {"verb": verb, "resource": resource, "namespace": "ns"}, **more}
    return {"kind": kind, "apiVersion": "authorization.k8s.io/v1", "spec": spec}


def test_reviews_say_what_requests_do(api, ann):
    give(api, "list", "pods")
    path = f"{REVIEWS}/selfsubjectaccessreviews"
    status = ann.post(path, allowed_to("list", "pods")).ok(201)["status"]
    assert status["allowed"] is True
    assert status["reason"].startswith("RBAC: allowed by RoleBinding")
    assert ann.post(path, allowed_to("get", "pods")).ok(201)["status"] == {"allowed": False}
    both = allowed_to("get", "pods", nonResourceAttributes={"verb": "get", "path": "/"})
    ann.post(path, both).fails(422, "Invalid")
    ann.post(path, {"spec": {}}).fails(422, "Invalid")
    about = allowed_to("list", "pods", kind="SubjectAccessReview", user="ann")
    assert api.post(f"{REVIEWS}/subjectaccessreviews", about).ok(201)["status"]["allowed"]
    about["spec"]["user"] = "bob"
    assert not api.post(f"{REVIEWS}/subjectaccessreviews", about).ok(201)["status"]["allowed"]
    about["spec"] |= {"user": "", "groups": ["system:masters"]}
    assert api.post(f"{REVIEWS}/subjectaccessreviews", about).ok(201)["status"]["allowed"]
    local = {**allowed_to("list", "pods", user="ann"), "kind": "LocalSubjectAccessReview"}
    place = f"{REVIEWS}/namespaces/ns/localsubjectaccessreviews"
    assert api.post(place, local).ok(201)["status"]["allowed"]
    api.post(place.replace("/ns/", "/default/"), local).fails(422, "Invalid")


def test_a_review_has_no_table_and_comes_as_json_where_that_is_taken(api, ann):
    body = {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}
    path = f"{REVIEWS}/selfsubjectaccessreviews"
    table = "application/json;as=Table;v=v1;g=meta.k8s.io"
    made = ann.post(path, body, accept=f"{table},application/json").ok(201)
    assert made["kind"] == "SelfSubjectAccessReview"
    assert made["status"] == {"allowed": False}
    ann.post(path, body, accept=table).fails(406, "NotAcceptable")
    kind = {"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1"}
    protobuf = "application/vnd.kubernetes.protobuf"
    found = ann.post(path, encode({**kind, **body}), content_type=protobuf, accept=protobuf)
    assert (found.status, decode(found.raw)["kind"]) == (201, "SelfSubjectAccessReview")


def test_rules_of_oneself_are_those_that_hold_there(api, ann):
    give(api, "list", "pods")
    path = f"{REVIEWS}/selfsubjectrulesreviews"
    status = ann.post(path, {"spec": {"namespace": "ns"}}).ok(201)["status"]
    assert rule("list", "pods") in status["resourceRules"]
    assert status["incomplete"] is False
    assert any("/api/*" in one["nonResourceURLs"] for one in status["nonResourceRules"])
    other = ann.post(path, {"spec": {"namespace": "default"}}).ok(201)["status"]
    assert rule("list", "pods") not in other["resourceRules"]
    ann.post(path, {"spec": {}}).fails(400, "BadRequest")


def test_default_roles_are_kept_complete_and_what_was_added_stays(api):
    path = f"{RBAC}/clusterroles/system:basic-user"
    default_roles.reconcile(now=NOW)
    added = rule("get", "pods")
    api.patch(path, {"rules": [added]}).ok()
    binding = f"{RBAC}/clusterrolebindings/system:discovery"
    api.delete(binding).ok()
    assert default_roles.reconcile(now=NOW) == ["system:discovery"]
    rules = api.get(path).ok()["rules"]
    assert added in rules
    assert sum("selfsubjectreviews" in one["resources"] for one in rules) == 1
    api.patch(path, {"metadata": {"annotations": {default_annotation(): "false"}}}).ok()
    api.patch(path, {"rules": []}).ok()
    assert default_roles.reconcile(now=NOW) == []
    assert not api.get(path).ok().get("rules")


def default_annotation():
    return "rbac.authorization.kubernetes.io/autoupdate"
