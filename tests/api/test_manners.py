"""Small things that Kubernetes' clients and end-to-end tests expect of every kind."""

from functools import partial
from operator import attrgetter

import pytest
from django.db import transaction

from clusterstate.actions import objects
from clusterstate.database import sql
from clusterstate.objects.registry.kinds import ALL_KINDS, KINDS
from tests.api.bodies import body_of, collection, named
from tests.api.builders import DEPLOYMENTS, NODES, PODS, binding, deployment, node, pod
from tests.api.conftest import APPLY, JSON_PATCH, MERGE, STRATEGIC, TABLE
from tests.clock import NOW
from tests.clusterstate.support import Worker
from tests.waiting import BLOCKED, until

# ------------------------------------------------------------------------------ failures


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [("GET", "/api/v1/unknown", 404), ("GET", "/apis/none/v1/things", 404),
     ("PATCH", f"{PODS}/p/ephemeralcontainers", 404), ("PUT", PODS, 405),
     ("POST", PODS, 400)],
)  # fmt: skip
def test_every_failure_has_details(api, method, path, code):
    """``kubectl debug`` reads them without looking whether they are there."""
    answer = api.call(method, path, b"[]", content_type=STRATEGIC)
    assert answer.status == code
    assert isinstance(answer.json["details"], dict)


@pytest.mark.parametrize(
    "path",
    ["", "/v1", "/v1/customresourcedefinitions", "/v1/customresourcedefinitions/a/status"],
)
def test_a_group_that_is_not_served_says_why(api, path):
    for method in ("GET",) if path in ("", "/v1") else ("GET", "POST", "DELETE"):
        answer = api.call(method, f"/apis/apiextensions.k8s.io{path}", b"{}")
        assert answer.fails(404, "NotFound")["message"] == (
            "the server could not find the requested resource: there are no custom resources, "
            "the kinds are fixed"
        )


@pytest.mark.parametrize("text", ["invalid", "5", "1 s", "s", "1d", "1s2"])
def test_a_timeout_that_is_no_duration_is_refused(api, text):
    for path in (PODS, f"{PODS}/p", "/api/v1", "/version"):
        status = api.get(f"{path}?timeout={text}").fails(400, "BadRequest")
        assert status["message"] == (
            f'invalid timeout specified in the request URL - time: invalid duration "{text}"'
        )


@pytest.mark.parametrize("text", ["", "0", "32s", "1h0m0.5s", "-1s", ".5ms"])
def test_a_timeout_that_go_reads_is_taken(api, text):
    api.get(f"{PODS}?timeout={text}").ok()


# ---------------------------------------------------------------------------- revisions


def test_revision_zero_updates_without_a_condition(api):
    made = api.post(PODS, pod()).ok(201)
    made["metadata"]["labels"] = {"a": "1"}
    api.put(f"{PODS}/p", made).ok()
    made["metadata"]["labels"] = {"a": "2"}
    api.put(f"{PODS}/p", made).fails(409, "Conflict")
    made["metadata"]["resourceVersion"] = "0"
    assert api.put(f"{PODS}/p", made).ok()["metadata"]["labels"] == {"a": "2"}


@pytest.mark.parametrize(
    "kind", [one for one in ALL_KINDS if one.created_by_update], ids=attrgetter("name")
)
@pytest.mark.parametrize("version", [{}, {"resourceVersion": ""}, {"resourceVersion": "0"}])
def test_an_update_creates_what_is_not_there(api, kind, version):
    path, body = f"{collection(kind)}/new", body_of(kind, "new")
    body["metadata"] |= version
    assert api.put(path, body).ok(201)["metadata"]["name"] == "new"
    body["metadata"]["name"] = "other"
    for meant in ({"resourceVersion": "7"}, {"uid": "u"}):
        body["metadata"] |= {"resourceVersion": "", "uid": ""} | meant
        api.put(f"{collection(kind)}/other", body).fails(404, "NotFound")


@pytest.mark.parametrize(
    "kind", [one for one in ALL_KINDS if one.versions_updates], ids=attrgetter("name")
)
def test_an_update_says_which_version_it_replaces_where_kubernetes_wants_that(api, kind):
    made = api.post(collection(kind), body_of(kind, "one")).ok(201)
    version = made["metadata"].pop("resourceVersion")
    path = f"{collection(kind)}/one"
    for given in ({}, {"resourceVersion": ""}, {"resourceVersion": "0"}):
        made["metadata"] |= given
        failed = api.put(path, made).fails(422, "Invalid")
        assert failed["message"] == (
            f'{kind.plural}.{kind.group} "one" is invalid: metadata.resourceVersion: '
            "Invalid value: 0: must be specified for an update"
        )
    made["metadata"]["resourceVersion"] = version
    api.put(path, made).ok()
    api.patch(path, {"metadata": {"labels": {"a": "b"}}}).ok()
    body = body_of(kind, "one")
    api.patch(f"{path}?fieldManager=test&force=true", body, APPLY).ok()


def _waits_for_a_lock():
    return sql.fetch(BLOCKED)


@pytest.mark.django_db(transaction=True)
def test_who_loses_a_race_to_create_an_object_updates_it(api):
    """Both saw that nothing was there; the loser was told that the name is taken."""
    path = "/apis/rbac.authorization.k8s.io/v1/namespaces/ns/roles"
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role"}

    def ask(name, by_apply):
        labels = {"by": "loser"}
        body = {**role, "metadata": {"name": name, "labels": labels}, "rules": []}
        if by_apply:
            return api.patch(f"{path}/{name}?fieldManager=test", body, APPLY)
        return api.put(f"{path}/{name}", body)

    for name, by_apply in (("put", False), ("applied", True)):
        with transaction.atomic():
            body = {**role, "metadata": {"name": name, "labels": {"of": "winner"}}, "rules": []}
            objects.create("Role", "ns", body, now=NOW)
            loser = Worker(partial(ask, name, by_apply))
            until(_waits_for_a_lock, what="the second creation to wait")
        made = loser.result().ok(200)
        assert made["metadata"]["labels"]["by"] == "loser"
        assert made["metadata"]["labels"].get("of") == ("winner" if by_apply else None)


def test_a_deletion_names_the_precondition_that_does_not_hold(api):
    made = api.post(PODS, pod()).ok(201)["metadata"]
    old = made["resourceVersion"]
    patch = {"metadata": {"labels": {"a": "1"}}}
    new = api.patch(f"{PODS}/p", patch).ok()["metadata"]["resourceVersion"]
    version = "ResourceVersion in precondition: {}, ResourceVersion in object meta: {}"
    for conditions, text in (
        ({"resourceVersion": old}, version.format(old, new)),
        ({"resourceVersion": "0"}, version.format(0, new)),
        ({"uid": "other"}, f"UID in precondition: other, UID in object meta: {made['uid']}"),
    ):
        failed = api.delete(f"{PODS}/p", {"preconditions": conditions}).fails(409, "Conflict")
        assert failed["message"] == (
            f'Operation cannot be fulfilled on pods "p": Precondition failed: {text}'
        )
    good = {"preconditions": {"uid": made["uid"], "resourceVersion": new}}
    api.delete(f"{PODS}/p", good).ok()


def test_a_list_exactly_at_a_revision_is_that_of_then(api):
    api.post(PODS, pod("a")).ok(201)
    api.post(PODS, pod("b")).ok(201)
    then = api.get(PODS).ok()["metadata"]["resourceVersion"]
    api.delete(f"{PODS}/a").ok()
    api.patch(f"{PODS}/b", {"metadata": {"labels": {"late": "1"}}}).ok()
    api.post(PODS, pod("c")).ok(201)

    for query in (f"resourceVersion={then}&resourceVersionMatch=Exact",
                  f"resourceVersion={then}&limit=500"):  # fmt: skip
        found = api.get(f"{PODS}?{query}").ok()
        assert [item["metadata"]["name"] for item in found["items"]] == ["a", "b"]
        assert "labels" not in found["items"][1]["metadata"]
        assert found["metadata"]["resourceVersion"] == then
    for query in (f"resourceVersion={then}&resourceVersionMatch=NotOlderThan",
                  f"resourceVersion={then}", "resourceVersion=0&limit=500"):  # fmt: skip
        found = api.get(f"{PODS}?{query}").ok()
        assert [item["metadata"]["name"] for item in found["items"]] == ["b", "c"]
    late = int(then) + 10**6
    for match in ("Exact", "NotOlderThan"):
        query = f"resourceVersion={late}&resourceVersionMatch={match}"
        api.get(f"{PODS}?{query}").fails(504, "Timeout")


@pytest.mark.parametrize(
    ("query", "field"),
    [("resourceVersionMatch=Exact", "resourceVersionMatch"),
     ("resourceVersion=0&resourceVersionMatch=Exact", "resourceVersionMatch"),
     ("resourceVersion=1&resourceVersionMatch=Newest", "resourceVersionMatch"),
     ("resourceVersion=1&resourceVersionMatch=Exact&continue=x", "resourceVersionMatch"),
     ("sendInitialEvents=true", "sendInitialEvents")],
)  # fmt: skip
def test_contradicting_list_options_are_refused(api, query, field):
    status = api.get(f"{PODS}?{query}").fails(422, "Invalid")
    assert status["message"].startswith('ListOptions.meta.k8s.io "" is invalid: ')
    assert [cause["field"] for cause in status["details"]["causes"]] == [field]


def test_numbers_of_lists_are_read_as_kubernetes_reads_them(api):
    """A limit below 1 is none; a time-out is one of watches and yet has to be a number."""
    for name in ("a", "b"):
        api.post(PODS, pod(name)).ok(201)
    for query in ("limit=-1", "limit=0", "limit=", "timeoutSeconds=-1", "timeoutSeconds=1"):
        listed = api.get(f"{PODS}?{query}").ok()
        assert len(listed["items"]) == 2
        assert "continue" not in listed["metadata"]
    for query in ("limit=x", "limit=1.5", "limit=--1", "timeoutSeconds=x", f"limit={'9' * 30}"):
        api.get(f"{PODS}?{query}").fails(400, "BadRequest")


def test_pages_tell_how_many_objects_remain(api):
    for name in "abcde":
        api.post(PODS, pod(name)).ok(201)
    page = api.get(f"{PODS}?limit=2").ok()["metadata"]
    assert page["remainingItemCount"] == 3
    # What comes and goes meanwhile is not part of the list.
    api.delete(f"{PODS}/e").ok()
    api.post(PODS, pod("f")).ok(201)
    page = api.get(f"{PODS}?limit=2&continue={page['continue']}").ok()["metadata"]
    assert page["remainingItemCount"] == 1
    page = api.get(f"{PODS}?limit=2&continue={page['continue']}").ok()
    assert [item["metadata"]["name"] for item in page["items"]] == ["e"]
    assert "remainingItemCount" not in page["metadata"]


def test_what_a_selector_leaves_is_not_counted(api):
    for name in "abc":
        api.post(PODS, pod(name, labels={"x": "1"})).ok(201)
    assert "remainingItemCount" not in api.get(f"{PODS}?limit=1&labelSelector=x").ok()["metadata"]


# ------------------------------------------------------------------------------ deletion


def _bound(api, name="p", **spec):
    api.post(NODES, node()).ok(201)
    api.post(PODS, pod(name, **spec)).ok(201)
    api.post(f"{PODS}/{name}/binding", binding(name, "n")).ok(201)
    return api.get(f"{PODS}/{name}").ok()["metadata"]


def test_a_graceful_deletion_raises_the_generation_once(api):
    assert _bound(api)["generation"] == 1
    assert api.delete(f"{PODS}/p").ok()["metadata"]["generation"] == 2
    shorter = api.delete(f"{PODS}/p", {"gracePeriodSeconds": 5}).ok()["metadata"]
    assert (shorter["generation"], shorter["deletionGracePeriodSeconds"]) == (2, 5)


def test_a_deletion_that_waits_for_finalizers_raises_the_generation(api):
    body = deployment()
    body["metadata"]["finalizers"] = ["example.com/hold"]
    api.post(DEPLOYMENTS, body).ok(201)
    assert api.delete(f"{DEPLOYMENTS}/web").ok()["metadata"]["generation"] == 2


@pytest.mark.parametrize(
    ("spec", "options"), [({"terminationGracePeriodSeconds": -1}, None),
                          ({}, {"gracePeriodSeconds": -7})]
)  # fmt: skip
def test_a_negative_period_is_one_second(api, spec, options):
    _bound(api, **spec)
    assert api.delete(f"{PODS}/p", options).ok()["metadata"]["deletionGracePeriodSeconds"] == 1


# ------------------------------------------------------------------------------ generations


@pytest.mark.parametrize(
    ("name", "patch", "raised"),
    [
        ("Deployment", {"metadata": {"annotations": {"a": "b"}}}, 1),
        ("Deployment", {"metadata": {"labels": {"a": "b"}}}, 0),
        ("ReplicaSet", {"metadata": {"annotations": {"a": "b"}}}, 0),
        ("EndpointSlice", {"ports": []}, 1),
        ("EndpointSlice", {"metadata": {"labels": {"a": "b"}}}, 1),
        ("EndpointSlice", {"metadata": {"annotations": {"a": "b"}}}, 0),
        ("CSIDriver", {"spec": {"storageCapacity": True}}, 1),
    ],
)
def test_the_generation_counts_what_kubernetes_counts(api, name, patch, raised):
    kind = KINDS[name]
    made = api.post(collection(kind), body_of(kind, "one")).ok(201)["metadata"]
    changed = api.patch(f"{collection(kind)}/one", patch).ok()["metadata"]
    assert (made["generation"], changed["generation"]) == (1, 1 + raised)


@pytest.mark.parametrize(
    ("given", "kept"),
    [("7", "7"), ("0", "1"), ("-3", "1"), ("", "1"), ("x", None), ("9" * 30, None), ("1_0", None)],
)
def test_a_daemon_set_goes_on_counting_its_templates(api, given, kept):
    kind, name = KINDS["DaemonSet"], "deprecated.daemonset.template.generation"
    body = body_of(kind, "one")
    body["metadata"]["annotations"] = {name: given, "a": "b"}
    answer = api.post(collection(kind), body)
    if kept is None:
        answer.fails(400, "BadRequest")
    else:
        assert answer.ok(201)["metadata"]["annotations"] == {name: kept, "a": "b"}


@pytest.mark.parametrize("field", ["serviceAccountName", "serviceAccount"])
def test_a_template_names_its_account_in_both_ways(api, field):
    body = deployment()
    body["spec"]["template"]["spec"][field] = "worker"
    made = api.post(DEPLOYMENTS, body).ok(201)["spec"]["template"]["spec"]
    assert (made["serviceAccountName"], made["serviceAccount"]) == ("worker", "worker")
    patch = {"spec": {"template": {"spec": {"serviceAccountName": "other"}}}}
    changed = api.patch(f"{DEPLOYMENTS}/web", patch).ok()["spec"]["template"]["spec"]
    assert (changed["serviceAccountName"], changed["serviceAccount"]) == ("other", "other")


# ---------------------------------------------------------------------------- subresources


def test_a_status_brings_annotations_with_it(api):
    api.post(DEPLOYMENTS, deployment()).ok(201)
    live = api.get(f"{DEPLOYMENTS}/web").ok()
    live["metadata"]["annotations"] = {"deployment.kubernetes.io/revision": "7"}
    live["metadata"]["labels"] = {"not": "taken"}
    live["spec"]["replicas"] = 9
    live["status"] = {"observedGeneration": 1}
    done = api.put(f"{DEPLOYMENTS}/web/status", live).ok()
    assert done["metadata"]["annotations"] == {"deployment.kubernetes.io/revision": "7"}
    assert "labels" not in done["metadata"]
    assert done["spec"]["replicas"] == 1
    assert done["status"]["observedGeneration"] == 1
    assert done["metadata"]["generation"] == 1


def test_a_pods_status_brings_labels_and_no_owners(api):
    api.post(PODS, pod()).ok(201)
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}
    patch = {"metadata": {"labels": {"a": "1"}, "ownerReferences": [owner]}}
    done = api.patch(f"{PODS}/p/status", patch, content_type=MERGE).ok()
    assert done["metadata"]["labels"] == {"a": "1"}
    assert "ownerReferences" not in done["metadata"]
    assert len(api.get(f"{PODS}?labelSelector=a=1").ok()["items"]) == 1


@pytest.mark.parametrize("kind", ALL_KINDS, ids=lambda kind: kind.name)
def test_a_write_is_about_the_object_that_its_path_names(api, kind):
    api.post(collection(kind), body_of(kind, "one")).ok(201)
    name, other = named(kind, "one"), named(kind, "two")
    path = f"{collection(kind)}/{name}"
    for answer in (
        api.put(path, body_of(kind, "two")),
        api.patch(path, {"metadata": {"name": other}}, MERGE),
        api.patch(path, [{"op": "add", "path": "/metadata/name", "value": other}], JSON_PATCH),
    ):
        assert answer.fails(400, "BadRequest")["message"] == (
            f"the name of the object ({other}) does not match the name on the URL ({name})"
        )
    removed = api.patch(path, {"metadata": {"name": None}}, MERGE).fails(400, "BadRequest")
    assert removed["message"] == (
        f"the name of the object ({name} based on URL) was undeterminable: name must be provided"
    )


def test_a_scale_is_that_of_the_object_on_its_path(api):
    api.post(DEPLOYMENTS, deployment("d")).ok(201)
    scale = {"metadata": {"name": "e", "namespace": "ns"}, "spec": {"replicas": 2}}
    refused = api.put(f"{DEPLOYMENTS}/d/scale", scale).fails(400, "BadRequest")
    assert "does not match the name on the URL (d)" in refused["message"]


# ------------------------------------------------------------------------ older fields' rules


def test_a_negative_grace_period_of_a_pod_is_one_second(api):
    made = api.post(PODS, pod(terminationGracePeriodSeconds=-1)).ok(201)
    assert made["spec"]["terminationGracePeriodSeconds"] == 1
    made["spec"]["terminationGracePeriodSeconds"] = -1
    assert api.put(f"{PODS}/p", made).ok()["spec"]["terminationGracePeriodSeconds"] == 1


def test_namespaces_are_selected_by_name_as_well(api):
    found = api.get("/api/v1/namespaces?fieldSelector=name=ns").ok()
    assert [one["metadata"]["name"] for one in found["items"]] == ["ns"]
    assert "ns" not in str(api.get("/api/v1/namespaces?fieldSelector=name=other").ok()["items"])


def test_what_is_no_revision_or_no_policy_is_told_in_kubernetes_words(api):
    status = api.get(f"{PODS}?resourceVersion=invalid").fails(400, "BadRequest")
    assert 'resourceVersion: Invalid value: "invalid"' in status["message"]
    answer = api.get(f"{PODS}?includeObject=most", accept=TABLE).fails(400, "BadRequest")
    assert answer["message"] == (
        "includeObject: Invalid value: \"most\": must be 'Metadata', 'Object', 'None', or empty"
    )
