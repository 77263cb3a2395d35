"""Create, read, list, replace, patch and delete, as clients see them."""

import pytest

from tests.api.builders import DEPLOYMENTS, NODES, PODS, binding, deployment, node, pod
from tests.api.conftest import APPLY, JSON_PATCH, MERGE, STRATEGIC, TABLE, names


def test_a_created_pod_comes_back_with_what_the_server_sets(api):
    made = api.post(PODS, pod()).ok(201)
    meta = made["metadata"]
    assert (made["kind"], made["apiVersion"]) == ("Pod", "v1")
    assert (meta["name"], meta["namespace"]) == ("p", "ns")
    assert len(meta["uid"]) == 36
    assert isinstance(meta["resourceVersion"], str)
    assert meta["creationTimestamp"].endswith("Z")
    assert made["spec"]["restartPolicy"] == "Always"
    assert made["spec"]["schedulerName"] == "default-scheduler"
    assert made["status"]["phase"] == "Pending"
    assert api.get(f"{PODS}/p").ok() == made
    assert api.get(f"{PODS}/p/").ok() == made


def test_answers_are_not_cached(api):
    assert "no-cache" in api.get(NODES).headers["Cache-Control"]


def test_kind_version_and_namespace_come_from_the_path_when_the_body_lacks_them(api):
    body = pod()
    del body["kind"], body["apiVersion"]
    made = api.post(PODS, body).ok(201)
    assert (made["kind"], made["metadata"]["namespace"]) == ("Pod", "ns")


def test_what_only_the_server_sets_is_ignored(api):
    body = pod()
    body["metadata"].update(uid="mine", creationTimestamp="2001-01-01T00:00:00Z", selfLink="/x")
    body["status"] = {"phase": "Running"}
    made = api.post(PODS, body).ok(201)
    assert made["metadata"]["uid"] != "mine"
    assert not made["metadata"]["creationTimestamp"].startswith("2001")
    assert made["status"]["phase"] == "Pending"


def test_a_node_keeps_the_status_it_is_created_with(api):
    assert api.post(NODES, node()).ok(201)["status"]["capacity"]["cpu"] == "4"


def test_generate_name_adds_five_characters(api):
    body = pod()
    body["metadata"] = {"generateName": "gen-"}
    name = api.post(PODS, body).ok(201)["metadata"]["name"]
    assert name.startswith("gen-")
    assert len(name) == 9


def test_yaml_is_accepted(api):
    text = b"metadata: {name: y}\nspec:\n  containers:\n  - {name: c, image: i}\n"
    made = api.post(PODS, text, content_type="application/yaml").ok(201)
    assert made["metadata"]["name"] == "y"


def test_quantities_may_be_numbers_and_come_back_as_text(api):
    body = pod(containers=[{"name": "c", "image": "i", "resources": {"requests": {"cpu": 1}}}])
    made = api.post(PODS, body).ok(201)
    assert made["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1"}


def test_unknown_fields_are_warned_about(api):
    answer = api.post(PODS, pod(flurb=1))
    answer.ok(201)
    assert answer.headers["Warning"] == '299 - "unknown field \\"spec.flurb\\""'


def test_what_the_cluster_does_not_have_is_warned_about(api):
    """R98: also for the pods of a list."""
    api.post(NODES, node()).ok(201)
    answer = api.post(PODS, pod(nodeSelector={"disk": "ssd"}))
    answer.ok(201)
    assert answer.headers["Warning"] == '299 - "spec.nodeSelector: no node has these labels now"'
    tolerations = [{"key": "gpu", "operator": "Exists"}]
    items = [pod("one", tolerations=tolerations), pod("two", tolerations=tolerations)]
    listed = api.post(PODS, {"apiVersion": "v1", "kind": "PodList", "items": items})
    listed.ok(201)
    assert listed.headers["Warning"].count("no node has a taint") == 1
    assert "Warning" not in api.post(PODS, pod("plain")).headers


def test_a_dry_run_shows_the_result_and_stores_nothing(api):
    made = api.post(f"{PODS}?dryRun=All", pod()).ok(201)
    assert made["spec"]["schedulerName"] == "default-scheduler"
    api.get(f"{PODS}/p").fails(404, "NotFound")
    api.post(NODES, node()).ok(201)
    patched = api.patch(f"{NODES}/n?dryRun=All", {"spec": {"unschedulable": True}}).ok()
    assert patched["spec"]["unschedulable"] is True
    assert "unschedulable" not in api.get(f"{NODES}/n").ok().get("spec", {})
    api.delete(f"{NODES}/n?dryRun=All").ok()
    api.get(f"{NODES}/n").ok()


# ------------------------------------------------------------------------------------- lists


def test_lists_are_of_their_kind_and_carry_a_version(api):
    for name in ("b", "a"):
        api.post(PODS, pod(name)).ok(201)
    body = api.get(PODS).ok()
    assert (body["kind"], body["apiVersion"]) == ("PodList", "v1")
    assert isinstance(body["metadata"]["resourceVersion"], str)
    assert names(api.get(PODS)) == ["a", "b"]
    assert names(api.get("/api/v1/pods")) == ["a", "b"]
    assert names(api.get("/api/v1/namespaces/other/pods")) == []


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("app=a", ["p1"]), ("app==a", ["p1"]), ("app!=a", ["p2", "p3"]), ("app", ["p1", "p2"]),
        ("!app", ["p3"]), ("app in (a,b)", ["p1", "p2"]), ("app notin (a)", ["p2", "p3"]),
        ("app=a,tier=x", []), ("example.com/x=1", ["p3"]),
    ],
)  # fmt: skip
def test_label_selectors_choose(api, selector, expected):
    api.post(PODS, pod("p1", labels={"app": "a"})).ok(201)
    api.post(PODS, pod("p2", labels={"app": "b"})).ok(201)
    api.post(PODS, pod("p3", labels={"example.com/x": "1"})).ok(201)
    from urllib.parse import quote

    assert names(api.get(f"{PODS}?labelSelector={quote(selector)}")) == expected


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("metadata.name=p1", ["p1"]), ("metadata.name!=p1", ["p2"]), ("spec.nodeName=n", ["p2"]),
        ("spec.nodeName=", ["p1"]), ("status.phase=Pending,spec.nodeName=n", ["p2"]),
        ("spec.schedulerName=mine", ["p1"]), ("metadata.namespace=ns", ["p1", "p2"]),
        ("status.phase!=Failed,status.phase!=Succeeded", ["p1", "p2"]),
        ("spec.restartPolicy=Always", ["p1", "p2"]),
    ],
)  # fmt: skip
def test_field_selectors_choose(api, selector, expected):
    api.post(NODES, node()).ok(201)
    api.post(PODS, pod("p1", schedulerName="mine")).ok(201)
    api.post(PODS, pod("p2")).ok(201)
    api.post(f"{PODS}/p2/binding", binding("p2", "n")).ok(201)
    assert names(api.get(f"{PODS}?fieldSelector={selector}")) == expected
    assert names(api.get(f"/api/v1/pods?fieldSelector={selector}")) == expected


def test_pages_join_to_the_whole_list_at_one_version(api):
    for index in range(5):
        api.post(PODS, pod(f"p{index}")).ok(201)
    seen, versions, token = [], set(), ""
    while True:
        page = api.get(f"{PODS}?limit=2&continue={token}").ok()
        assert len(page["items"]) <= 2
        seen += [item["metadata"]["name"] for item in page["items"]]
        versions.add(page["metadata"]["resourceVersion"])
        token = page["metadata"].get("continue", "")
        if not token:
            break
    assert seen == ["p0", "p1", "p2", "p3", "p4"]
    assert len(versions) == 1


def test_a_broken_continue_token_is_refused(api):
    api.get(f"{PODS}?limit=1&continue=flurb").fails(400, "BadRequest")


def test_tables_are_given_to_those_who_ask(api):
    api.post(NODES, node()).ok(201)
    for path in (NODES, f"{NODES}/n"):
        table = api.get(path, accept=TABLE).ok()
        assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
        assert [row["cells"][:2] for row in table["rows"]] == [["n", "Ready"]]
        assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    table = api.get(f"{NODES}/n?includeObject=Object", accept=TABLE).ok()
    assert table["rows"][0]["object"]["status"]["capacity"]["cpu"] == "4"
    assert api.get(f"{NODES}/nosuch", accept=TABLE).status == 404
    api.get(f"{NODES}?includeObject=Flurb", accept=TABLE).fails(400, "BadRequest")


def test_pretty_answers_have_line_breaks(api):
    assert b'\n  "kind"' in api.get(f"{NODES}?pretty=true").raw


# -------------------------------------------------------------------------------- all or none


def test_a_pod_list_is_created_as_a_whole(api):
    body = {"kind": "PodList", "apiVersion": "v1", "items": [pod(f"p{i}") for i in range(3)]}
    made = api.post(PODS, body).ok(201)
    assert made["kind"] == "PodList"
    assert [item["metadata"]["name"] for item in made["items"]] == ["p0", "p1", "p2"]
    assert len({item["metadata"]["resourceVersion"] for item in made["items"]}) == 3
    assert names(api.get(PODS)) == ["p0", "p1", "p2"]


def test_a_list_with_one_wrong_item_creates_nothing(api):
    wrong = pod("p1", containers=[])
    body = {"kind": "List", "apiVersion": "v1", "items": [pod("p0"), wrong]}
    assert api.post(PODS, body).status == 422
    assert names(api.get(PODS)) == []
    body["items"] = [pod("p0"), pod("p0")]
    api.post(PODS, body).fails(409, "AlreadyExists")
    assert names(api.get(PODS)) == []


def test_a_list_for_all_namespaces_needs_one_in_each_item(api):
    item = pod("p0")
    body = {"kind": "PodList", "items": [item]}
    api.post("/api/v1/pods", body).fails(400, "BadRequest")
    item["metadata"]["namespace"] = "ns"
    assert api.post("/api/v1/pods", body).ok(201)["items"][0]["metadata"]["namespace"] == "ns"


def test_nodes_come_in_lists_too(api):
    body = {"kind": "NodeList", "items": [node("a"), node("b")]}
    assert len(api.post(NODES, body).ok(201)["items"]) == 2
    assert names(api.get(NODES)) == ["a", "b"]


def test_a_list_of_several_kinds_is_created_in_order(api):
    space = {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "fresh"}}
    inside = pod()
    inside["metadata"]["namespace"] = "fresh"
    body = {"kind": "List", "apiVersion": "v1", "items": [space, node("m"), inside]}
    made = api.post("/api/v1", body).ok(201)
    assert [item["kind"] for item in made["items"]] == ["Namespace", "Node", "Pod"]
    body["items"] = [node("k"), {"kind": "Flurb"}]
    api.post("/api/v1", body).fails(400, "BadRequest")
    assert "k" not in names(api.get(NODES))


# ---------------------------------------------------------------------------- replace and patch


def test_put_replaces_and_a_stale_version_conflicts(api):
    before = api.post(NODES, node()).ok(201)
    body = {**before, "spec": {"unschedulable": True}}
    after = api.put(f"{NODES}/n", body).ok()
    assert after["spec"]["unschedulable"] is True
    assert after["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]
    api.put(f"{NODES}/n", body).fails(409, "Conflict")
    del body["metadata"]["resourceVersion"]
    api.put(f"{NODES}/n", body).ok()
    api.put(f"{NODES}/m", body).fails(400, "BadRequest")
    api.put(f"{NODES}/m", node("m")).fails(404, "NotFound")


def test_a_change_that_changes_nothing_keeps_the_version(api):
    before = api.post(NODES, node()).ok(201)
    for content_type, body in ((MERGE, {}), (STRATEGIC, {}), (JSON_PATCH, [])):
        assert api.patch(f"{NODES}/n", body, content_type).ok() == before
    assert api.put(f"{NODES}/n", before).ok() == before


def test_merge_patch_deletes_with_null_and_replaces_lists(api):
    api.post(NODES, node(labels={"a": "1"}, taints=[{"key": "k", "effect": "NoSchedule"}])).ok(201)
    body = {"metadata": {"labels": {"a": None, "b": "2"}}, "spec": {"taints": []}}
    after = api.patch(f"{NODES}/n", body).ok()
    labels = after["metadata"]["labels"]
    assert labels["b"] == "2"
    assert "a" not in labels
    assert not after["spec"].get("taints")


def test_json_patch_applies_operations(api):
    api.post(NODES, node(labels={"a": "1"})).ok(201)
    ops = [
        {"op": "test", "path": "/metadata/labels/a", "value": "1"},
        {"op": "add", "path": "/metadata/labels/b", "value": "2"},
        {"op": "remove", "path": "/metadata/labels/a"},
    ]
    labels = api.patch(f"{NODES}/n", ops, JSON_PATCH).ok()["metadata"]["labels"]
    assert labels["b"] == "2"
    assert "a" not in labels
    assert api.patch(f"{NODES}/n", ops, JSON_PATCH).status == 422
    api.patch(f"{NODES}/n", {"op": "add"}, JSON_PATCH).fails(400, "BadRequest")


def test_strategic_merge_patch_merges_containers_by_name(api):
    api.post(DEPLOYMENTS, deployment(replicas=0)).ok(201)
    patch = {"spec": {"template": {"spec": {
        "containers": [{"name": "c", "image": "i:2"}, {"name": "d", "image": "i:3"}],
        "tolerations": [{"key": "k", "operator": "Exists"}]}}}}  # fmt: skip
    spec = api.patch(f"{DEPLOYMENTS}/web", patch, STRATEGIC).ok()["spec"]["template"]["spec"]
    assert [(c["name"], c["image"]) for c in spec["containers"]] == [("c", "i:2"), ("d", "i:3")]
    patch = {"spec": {"template": {"spec": {
        "$setElementOrder/containers": [{"name": "d"}],
        "containers": [{"name": "c", "$patch": "delete"}], "tolerations": []}}}}  # fmt: skip
    spec = api.patch(f"{DEPLOYMENTS}/web", patch, STRATEGIC).ok()["spec"]["template"]["spec"]
    assert [c["name"] for c in spec["containers"]] == ["d"]
    assert "$" not in str(spec)


def test_a_patch_may_carry_the_version_it_was_made_for(api):
    before = api.post(NODES, node()).ok(201)
    api.patch(f"{NODES}/n", {"metadata": {"labels": {"a": "1"}}}).ok()
    version = before["metadata"]["resourceVersion"]
    body = {"metadata": {"resourceVersion": version, "labels": {"a": "2"}}}
    api.patch(f"{NODES}/n", body).fails(409, "Conflict")


def test_unknown_patch_types_are_refused(api):
    api.post(NODES, node()).ok(201)
    api.patch(f"{NODES}/n", {}, "application/x-flurb").fails(415, "UnsupportedMediaType")
    api.patch(f"{NODES}/n", {}, "application/json").fails(415, "UnsupportedMediaType")


def test_server_side_apply_creates_merges_removes_and_conflicts(api):
    path = f"{PODS}/p?fieldManager=one"
    body = pod(labels={"a": "1", "b": "2"})
    made = api.patch(path, body, APPLY).ok(201)
    [entry] = made["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"]) == ("one", "Apply")
    assert "f:image" in entry["fieldsV1"]["f:spec"]["f:containers"]['k:{"name":"c"}']
    assert api.patch(path, body, APPLY).ok() == made
    del body["metadata"]["labels"]["b"]
    assert api.patch(path, body, APPLY).ok()["metadata"]["labels"] == {"a": "1"}
    other = f"{PODS}/p?fieldManager=two"
    changed = pod(labels={"a": "9"})
    conflict = api.patch(other, changed, APPLY).fails(409, "Conflict")
    assert conflict["message"] == (
        'Apply failed with 1 conflict: conflict with "one": .metadata.labels.a'
    )
    forced = api.patch(f"{other}&force=true", changed, APPLY).ok()
    assert forced["metadata"]["labels"] == {"a": "9"}
    api.patch(f"{PODS}/p", body, APPLY).fails(422, "Invalid")


# -------------------------------------------------------------------------------- subresources


def test_status_changes_the_status_only(api):
    api.post(PODS, pod()).ok(201)
    body = {
        "metadata": {"labels": {"x": "y"}},
        "spec": {"priority": 77},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }
    after = api.patch(f"{PODS}/p/status", body, STRATEGIC).ok()
    assert after["status"]["phase"] == "Running"
    assert after["spec"].get("priority") != 77
    body = {"status": {"conditions": [{"type": "Initialized", "status": "True"}]}}
    conditions = api.patch(f"{PODS}/p/status", body, STRATEGIC).ok()["status"]["conditions"]
    assert {"Ready", "Initialized"} <= {c["type"] for c in conditions}
    body = {"status": {"phase": "Failed"}}
    assert api.patch(f"{PODS}/p", body).ok()["status"]["phase"] == "Running"


def test_binding_sets_the_node_and_a_second_one_conflicts(api):
    api.post(NODES, node()).ok(201)
    api.post(PODS, pod()).ok(201)
    told = api.post(f"{PODS}/p/binding", binding("p", "n")).ok(201)
    after = api.get(f"{PODS}/p").ok()
    version = after["metadata"]["resourceVersion"]
    assert (told["status"], told["metadata"]) == ("Success", {"resourceVersion": version})
    assert after["spec"]["nodeName"] == "n"
    assert [c["status"] for c in after["status"]["conditions"] if c["type"] == "PodScheduled"] == [
        "True"
    ]
    status = api.post(f"{PODS}/p/binding", binding("p", "m")).fails(409, "Conflict")
    assert 'pod p is already assigned to node "n"' in status["message"]
    api.post(f"{PODS}/q/binding", binding("q", "n")).fails(404, "NotFound")
    api.post(f"{PODS}/p/binding", {"kind": "Binding"}).fails(400, "BadRequest")


def test_a_pod_takes_over_the_labels_and_annotations_of_its_binding(api):
    """Rule: registry/core/pod/storage ``setPodNodeAndMetadata``, v1.36."""
    api.post(NODES, node()).ok(201)
    api.post(PODS, pod(labels={"app": "web", "a": "old"})).ok(201)
    one = binding("p", "n")
    one["metadata"] |= {"labels": {"a": "new", "zone": "z"}, "annotations": {"why": "so"}}
    wrong = {**one, "metadata": {**one["metadata"], "labels": {"no label": "x"}}}
    status = api.post(f"{PODS}/p/binding", wrong).fails(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "metadata.labels"
    api.post(f"{PODS}/p/binding", one).ok(201)
    found = api.get(f"{PODS}/p").ok()["metadata"]
    assert found["labels"] == {"app": "web", "a": "new", "zone": "z"}
    assert found["annotations"] == {"why": "so"}
    listed = api.get(f"{PODS}?labelSelector=zone=z,a=new").ok()["items"]
    assert [item["metadata"]["name"] for item in listed] == ["p"]
    assert api.get(f"{PODS}?labelSelector=a=old").ok()["items"] == []


def test_annotations_of_a_pod_and_its_binding_are_not_too_many_together(api):
    """A pod with more of them could not be changed any more, by its node's agent neither."""
    api.post(NODES, node()).ok(201)
    long = "x" * (200 * 1024)
    first = pod()
    first["metadata"]["annotations"] = {"own": long}
    api.post(PODS, first).ok(201)
    one = binding("p", "n")
    one["metadata"]["annotations"] = {"more": long}
    status = api.post(f"{PODS}/p/binding", one).fails(422, "Invalid")
    assert [cause["field"] for cause in status["details"]["causes"]] == ["metadata.annotations"]
    assert not api.get(f"{PODS}/p").ok()["spec"].get("nodeName")
    one["metadata"]["annotations"] = {"own": "short"}
    api.post(f"{PODS}/p/binding", one).ok(201)
    api.patch(f"{PODS}/p/status", {"status": {"phase": "Running"}}).ok()


def test_bindings_can_be_posted_to_their_collection(api):
    api.post(NODES, node()).ok(201)
    api.post(PODS, pod()).ok(201)
    api.post("/api/v1/namespaces/ns/bindings", binding("p", "n")).ok(201)
    assert api.get(f"{PODS}/p").ok()["spec"]["nodeName"] == "n"


def test_eviction_deletes(api):
    api.post(PODS, pod()).ok(201)
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"},
            "deleteOptions": {"gracePeriodSeconds": 0}}  # fmt: skip
    dry = {**body, "deleteOptions": {"dryRun": ["All"]}}
    api.post(f"{PODS}/p/eviction", dry).ok(201)
    api.get(f"{PODS}/p").ok()
    assert api.post(f"{PODS}/p/eviction", body).ok(201)["status"] == "Success"
    api.get(f"{PODS}/p").fails(404, "NotFound")
    api.post(f"{PODS}/p/eviction", body).fails(404, "NotFound")


def test_scale_reads_and_writes_replicas(api):
    api.post(DEPLOYMENTS, deployment()).ok(201)
    path = f"{DEPLOYMENTS}/web/scale"
    scale = api.get(path).ok()
    assert (scale["kind"], scale["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert (scale["spec"]["replicas"], scale["status"]["selector"]) == (1, "app=web")
    after = api.patch(path, {"spec": {"replicas": 3}}).ok()
    assert after["spec"]["replicas"] == 3
    assert api.get(f"{DEPLOYMENTS}/web").ok()["metadata"]["generation"] == 2
    api.put(path, scale).fails(409, "Conflict")
    after["spec"] = {}
    assert api.put(path, after).ok()["spec"]["replicas"] == 0


# ------------------------------------------------------------------------------------- deletes


def test_a_pod_without_a_node_is_deleted_at_once_and_returned(api):
    api.post(PODS, pod()).ok(201)
    gone = api.delete(f"{PODS}/p", {"propagationPolicy": "Background"}).ok()
    assert (gone["kind"], gone["metadata"]["name"]) == ("Pod", "p")
    api.get(f"{PODS}/p").fails(404, "NotFound")
    api.delete(f"{PODS}/p").fails(404, "NotFound")


def test_a_bound_pod_terminates_and_goes_with_grace_zero(api):
    api.post(NODES, node()).ok(201)
    api.post(PODS, pod()).ok(201)
    api.post(f"{PODS}/p/binding", binding("p", "n")).ok(201)
    meta = api.delete(f"{PODS}/p?gracePeriodSeconds=20").ok()["metadata"]
    assert meta["deletionGracePeriodSeconds"] == 20
    assert api.get(f"{PODS}/p").ok()["metadata"]["deletionTimestamp"] == meta["deletionTimestamp"]
    api.delete(f"{PODS}/p", {"gracePeriodSeconds": 0}).ok()
    api.get(f"{PODS}/p").fails(404, "NotFound")


def test_preconditions_guard_a_deletion(api):
    made = api.post(NODES, node()).ok(201)
    api.delete(f"{NODES}/n", {"preconditions": {"uid": "other"}}).fails(409, "Conflict")
    api.delete(f"{NODES}/n", {"preconditions": {"resourceVersion": "1"}}).fails(409, "Conflict")
    done = api.delete(f"{NODES}/n", {"preconditions": {"uid": made["metadata"]["uid"]}}).ok()
    assert done["status"] == "Success"
    assert int(done["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])
    assert done["details"] == {"kind": "nodes", "name": "n", "uid": made["metadata"]["uid"]}


def test_a_collection_is_deleted_by_selector(api):
    api.post(PODS, pod("p1", labels={"app": "a"})).ok(201)
    api.post(PODS, pod("p2")).ok(201)
    assert api.delete(f"{PODS}?labelSelector=app%3Da").ok()["apiVersion"] == "v1"
    assert names(api.get(PODS)) == ["p2"]


UNSAFE = "ignoreStoreReadErrorWithClusterBreakingPotential"


def test_a_deletion_without_a_look_at_the_object_is_refused_as_a_parameter_and_of_many(api):
    api.post(PODS, pod()).ok(201)
    for path in (f"{PODS}/p", PODS):
        api.delete(f"{path}?{UNSAFE}=true").fails(422, "Invalid")
        api.delete(f"{path}?{UNSAFE}=maybe").fails(400, "BadRequest")
    api.post(f"{PODS}/p/eviction", {"deleteOptions": {UNSAFE: True}}).fails(422, "Invalid")
    assert names(api.get(PODS)) == ["p"]
    api.delete(f"{PODS}/p?{UNSAFE}=false").ok()


def test_deleting_a_node_leaves_its_pods(api):
    api.post(NODES, node()).ok(201)
    api.post(PODS, pod()).ok(201)
    api.post(f"{PODS}/p/binding", binding("p", "n")).ok(201)
    api.delete(f"{NODES}/n").ok()
    assert api.get(f"{PODS}/p").ok()["spec"]["nodeName"] == "n"


@pytest.mark.parametrize(
    "body",
    [{"gracePeriodSeconds": "soon"}, {"preconditions": []}, {"kind": "Pod"},
     {"orphanDependents": "yes"}],
)  # fmt: skip
def test_delete_options_that_do_not_decode_are_refused(api, body):
    api.post(PODS, pod()).ok(201)
    api.delete(f"{PODS}/p", body).fails(400, "BadRequest")
    api.get(f"{PODS}/p").ok()


@pytest.mark.parametrize(
    ("body", "field"),
    [({"propagationPolicy": "Maybe"}, "propagationPolicy"), ({"dryRun": ["Some"]}, "dryRun"),
     ({"orphanDependents": True, "propagationPolicy": "Orphan"}, "propagationPolicy"),
     ({UNSAFE: True}, UNSAFE)],
)  # fmt: skip
def test_wrong_delete_options_are_refused_by_the_name_of_the_field(api, body, field):
    api.post(PODS, pod()).ok(201)
    status = api.delete(f"{PODS}/p", body).fails(422, "Invalid")
    assert status["message"].startswith('DeleteOptions.meta.k8s.io "" is invalid: ')
    assert [cause["field"] for cause in status["details"]["causes"]] == [field]
    api.get(f"{PODS}/p").ok()


@pytest.mark.parametrize(
    ("query", "body", "expected"),
    [
        ("", None, None),
        ("", {"propagationPolicy": "Background"}, None),
        ("", {"propagationPolicy": "Foreground"}, "foregroundDeletion"),
        ("", {"propagationPolicy": "Orphan"}, "orphan"),
        ("", {"orphanDependents": True}, "orphan"),
        ("", {"orphanDependents": False}, None),
        ("?propagationPolicy=Foreground", None, "foregroundDeletion"),
        ("?propagationPolicy=Orphan", None, "orphan"),
        ("?orphanDependents=true", None, "orphan"),
        ("?orphanDependents=false", None, None),
    ],
)
@pytest.mark.parametrize("collection", [False, True])
def test_a_deletion_says_what_becomes_of_dependents(api, query, body, expected, collection):
    """By parameter or DeleteOptions; the object stays for the collector while it has work."""
    api.post(DEPLOYMENTS, deployment()).ok(201)
    path = DEPLOYMENTS if collection else f"{DEPLOYMENTS}/web"
    answer = api.delete(f"{path}{query}", body).ok()
    if expected is None:
        assert answer["kind"] == "Status"
        api.get(f"{DEPLOYMENTS}/web").fails(404, "NotFound")
        return
    found = api.get(f"{DEPLOYMENTS}/web").ok()["metadata"]
    assert found["finalizers"] == [expected]
    assert found["deletionTimestamp"]
    assert answer["kind"] == ("Status" if collection else "Deployment")


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (None, 200),
        ({"orphanDependents": False}, 202),
        ({"propagationPolicy": "Background"}, 200),
        ({"propagationPolicy": "Foreground"}, 200),
    ],
)
def test_a_deletion_that_a_finalizer_holds_up_is_accepted(api, options, code):
    """``Test202StatusCode`` of Kubernetes: only ``orphanDependents: false`` is told of it."""
    held = deployment()
    held["metadata"]["finalizers"] = ["example.com/hold"]
    api.post(DEPLOYMENTS, held).ok(201)
    assert api.delete(f"{DEPLOYMENTS}/web", options).ok(code)["kind"] == "Deployment"
    assert api.get(f"{DEPLOYMENTS}/web").ok()["metadata"]["deletionTimestamp"]


@pytest.mark.parametrize(
    ("query", "code", "reason"),
    [("?propagationPolicy=Never", 422, "Invalid"), ("?orphanDependents=maybe", 400, "BadRequest")],
)
def test_a_policy_that_is_none_changes_nothing(api, query, code, reason):
    api.post(DEPLOYMENTS, deployment()).ok(201)
    for path in (DEPLOYMENTS, f"{DEPLOYMENTS}/web"):
        api.delete(f"{path}{query}").fails(code, reason)
    assert "finalizers" not in api.get(f"{DEPLOYMENTS}/web").ok()["metadata"]
