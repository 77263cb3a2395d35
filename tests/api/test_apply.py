"""Server-side apply over HTTP, and what others write between two applies."""

from tests.api.builders import DEPLOYMENTS, NODES, PODS, deployment, node, pod
from tests.api.conftest import APPLY, JSON_PATCH, STRATEGIC

WEB = f"{DEPLOYMENTS}/web"


def applied(api, body, manager="kubectl", query="", path=WEB):
    return api.patch(f"{path}?fieldManager={manager}{query}", body, APPLY)


def managers(item):
    return [
        (one["manager"], one["operation"], one.get("subresource", ""))
        for one in item["metadata"].get("managedFields", ())
    ]


def test_a_scale_survives_the_next_apply(api):
    applied(api, deployment(replicas=3)).ok(201)
    api.patch(f"{WEB}/scale?fieldManager=scaler", {"spec": {"replicas": 4}}).ok()
    after = applied(api, deployment()).ok()
    assert after["spec"]["replicas"] == 4
    assert managers(after) == [("kubectl", "Apply", ""), ("scaler", "Update", "scale")]


def test_replicas_are_applied_through_a_scale(api):
    applied(api, deployment()).ok(201)
    path = f"{WEB}/scale"
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "web"}}
    api.patch(path, {**scale, "spec": {"replicas": 4}}, APPLY).fails(422, "Invalid")
    done = applied(api, {**scale, "spec": {"replicas": 4}}, "scaler", path=path).ok()
    assert (done["kind"], done["spec"]["replicas"]) == ("Scale", 4)
    live = api.get(WEB).ok()
    assert live["spec"]["replicas"] == 4
    assert ("scaler", "Apply", "scale") in managers(live)
    (entry,) = (one for one in live["metadata"]["managedFields"] if one["manager"] == "scaler")
    assert entry["fieldsV1"] == {"f:spec": {"f:replicas": {}}}
    assert entry["apiVersion"] == "apps/v1"

    failed = applied(api, {**scale, "spec": {"replicas": 5}}, "other", path=path)
    assert failed.fails(409, "Conflict")["message"] == (
        'Apply failed with 1 conflict: conflict with "scaler" with subresource "scale": '
        ".spec.replicas"
    )
    forced = {**scale, "spec": {"replicas": 5}}
    applied(api, forced, "other", "&force=true", path=path).ok()
    assert applied(api, deployment()).ok()["spec"]["replicas"] == 5
    for wrong in ({"uid": "u"}, {"resourceVersion": "1"}):
        body = {**forced, "metadata": {"name": "web"} | wrong}
        applied(api, body, "other", path=path).fails(409, "Conflict")
    body = {**forced, "metadata": {"name": "x"}}
    applied(api, body, "other", path=path).fails(400, "BadRequest")
    absent = path.replace("web", "absent")
    applied(api, {**forced, "metadata": {}}, "other", path=absent).fails(404, "NotFound")


def test_who_applies_no_field_any_more_is_no_manager(api):
    """``stripMetaManager``, apimachinery managedfields/internal/stripmeta.go, v1.36."""
    applied(api, deployment(), "one").ok(201)
    applied(api, deployment(), "two").ok()
    bare = {key: value for key, value in deployment().items() if key != "spec"}
    assert managers(applied(api, bare, "one").ok()) == [("two", "Apply", "")]


def test_an_apply_names_the_version_of_its_path(api):
    """``structuredMergeManager.Apply``, apimachinery managedfields, v1.36."""
    for version in ("apps/v1beta1", None):
        said = {**deployment(), "apiVersion": version}
        if version is None:
            del said["apiVersion"]
        assert applied(api, said).fails(400, "BadRequest")["message"] == (
            "Incorrect version specified in apply patch. "
            f"Specified patch version: {version or ''}, expected: apps/v1"
        )


def test_a_conflict_names_each_owner_once_with_its_fields(api):
    """apimachinery managedfields/internal/conflict.go, v1.36."""
    applied(api, deployment(replicas=3), "zoe").ok(201)
    scaled = {"spec": {"replicas": 4}}
    api.patch(f"{WEB}/scale?fieldManager=scaler", scaled, STRATEGIC).ok()
    template = {"metadata": {"annotations": {"a": "1"}}, "spec": {"nodeName": "n"}}
    api.patch(f"{WEB}?fieldManager=hand", {"spec": {"template": template}}, STRATEGIC).ok()
    said = deployment(replicas=5)
    said["spec"]["selector"]["matchLabels"] = {"app": "other"}
    said["spec"]["template"]["metadata"]["annotations"] = {"a": "2"}
    said["spec"]["template"]["spec"]["nodeName"] = "m"
    failed = applied(api, said, "other").fails(409, "Conflict")
    assert failed["message"] == (
        "Apply failed with 4 conflicts: "
        'conflicts with "hand" using apps/v1:\n'
        "- .spec.template.metadata.annotations.a\n"
        "- .spec.template.spec.nodeName\n"
        'conflicts with "scaler" with subresource "scale" using apps/v1:\n'
        "- .spec.replicas\n"
        'conflicts with "zoe":\n'
        "- .spec.selector"
    )
    assert failed["details"]["causes"][2] == {
        "reason": "FieldManagerConflict", "field": ".spec.replicas",
        "message": 'conflict with "scaler" with subresource "scale" using apps/v1',
    }  # fmt: skip
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "web"}, **scaled}
    scale["spec"] = {"replicas": 5}
    failed = applied(api, scale, "other", path=f"{WEB}/scale").fails(409, "Conflict")
    assert 'subresource "scale" using autoscaling/v1: .spec.replicas' in failed["message"]


def test_what_is_no_longer_applied_goes_back_to_its_default(api):
    applied(api, deployment(replicas=3)).ok(201)
    assert applied(api, deployment()).ok()["spec"]["replicas"] == 1


def test_a_patch_makes_a_conflict_with_the_next_apply(api):
    applied(api, deployment(replicas=3)).ok(201)
    for content_type in ("application/merge-patch+json", STRATEGIC):
        api.patch(f"{WEB}?fieldManager=hand", {"spec": {"replicas": 5}}, content_type).ok()
        failed = applied(api, deployment(replicas=3)).fails(409, "Conflict")
        assert failed["message"] == (
            'Apply failed with 1 conflict: conflict with "hand" using apps/v1: .spec.replicas'
        )
        applied(api, deployment(replicas=3), query="&force=true").ok()
    live = api.get(WEB).ok()
    live["spec"]["replicas"] = 6
    api.put(f"{WEB}?fieldManager=hand", live).ok()
    applied(api, deployment(replicas=3)).fails(409, "Conflict")


def test_the_creator_is_named_and_its_fields_make_a_conflict(api):
    made = api.post(DEPLOYMENTS, deployment(replicas=2), HTTP_USER_AGENT="maker/v1 (x)").ok(201)
    assert managers(made) == [("maker", "Update", "")]
    (entry,) = made["metadata"]["managedFields"]
    assert (entry["apiVersion"], entry["fieldsType"]) == ("apps/v1", "FieldsV1")
    assert entry["time"] == made["metadata"]["creationTimestamp"]
    # Defaults are the creator's as well, since it could have said them.
    assert "f:paused" not in entry["fieldsV1"]["f:spec"]
    assert "f:revisionHistoryLimit" in entry["fieldsV1"]["f:spec"]
    assert api.get(WEB).ok()["metadata"]["managedFields"] == [entry]
    applied(api, deployment(replicas=3)).fails(409, "Conflict")


def test_a_pod_that_nobody_applied_has_no_entries(api):
    made = api.post(f"{PODS}?fieldManager=maker", pod(labels={"a": "1"})).ok(201)
    assert managers(made) == []
    patched = api.patch(f"{PODS}/p", {"metadata": {"labels": {"a": "2"}}}).ok()
    assert managers(patched) == []
    path = f"{PODS}/p"
    failed = applied(api, pod(labels={"a": "1"}), path=path).fails(409, "Conflict")
    assert 'conflict with "before-first-apply" using v1: .metadata.labels.a' in failed["message"]
    after = applied(api, pod(labels={"a": "2"}), path=path).ok()
    assert managers(after) == [
        ("kubectl", "Apply", ""), ("before-first-apply", "Update", ""),
    ]  # fmt: skip
    api.patch(f"{path}?fieldManager=hand", {"metadata": {"labels": {"a": "3"}}}).ok()
    failed = applied(api, pod(labels={"a": "2"}), path=path).fails(409, "Conflict")
    assert 'conflict with "hand" using v1: .metadata.labels.a' in failed["message"]


def test_a_container_that_is_no_longer_applied_is_removed(api):
    two = deployment()
    containers = two["spec"]["template"]["spec"]["containers"]
    containers.append({"name": "side", "image": "example.com/s:1", "ports": [{"containerPort": 1}]})
    applied(api, two).ok(201)
    after = applied(api, deployment()).ok()
    assert [c["name"] for c in after["spec"]["template"]["spec"]["containers"]] == ["c"]


def test_an_update_that_changes_nothing_writes_nothing(api):
    made = applied(api, deployment(replicas=3)).ok(201)
    assert api.patch(f"{WEB}?fieldManager=hand", {"spec": {"replicas": 3}}).ok() == made
    without = {**made, "metadata": {**made["metadata"]}}
    del without["metadata"]["managedFields"]
    assert api.put(f"{WEB}?fieldManager=hand", without).ok() == made


def test_entries_can_be_reset_and_replaced(api):
    """``kubectl apply --server-side`` rewrites the entries of an apply on the client's side."""
    made = api.post(f"{DEPLOYMENTS}?fieldManager=kubectl-client-side-apply", deployment()).ok(201)
    (entry,) = made["metadata"]["managedFields"]
    entry |= {"manager": "kubectl", "operation": "Apply"}
    operation = {"op": "replace", "path": "/metadata/managedFields", "value": [entry]}
    after = api.patch(f"{WEB}?fieldManager=kubectl", [operation], JSON_PATCH).ok()
    assert managers(after) == [("kubectl", "Apply", "")]
    reset = api.patch(WEB, {"metadata": {"managedFields": [{}]}}).ok()
    assert managers(reset) == []


def test_entries_cannot_be_applied(api):
    body = deployment()
    body["metadata"]["managedFields"] = [{"manager": "x"}]
    failed = applied(api, body).fails(400, "BadRequest")
    assert failed["message"] == "metadata.managedFields must be nil"


def test_heartbeats_of_nodes_leave_the_entries_alone(api):
    made = api.post(f"{NODES}?fieldManager=kubelet", node(labels={"a": "1"})).ok(201)
    assert managers(made) == [("kubelet", "Update", "")]
    beat = {"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "x"}]}}
    after = api.patch(f"{NODES}/n/status?fieldManager=kubelet", beat, STRATEGIC).ok()
    assert after["metadata"]["managedFields"] == made["metadata"]["managedFields"]
    labelled = api.patch(f"{NODES}/n?fieldManager=hand", {"metadata": {"labels": {"a": "2"}}}).ok()
    assert managers(labelled) == [("hand", "Update", ""), ("kubelet", "Update", "")]


def test_a_manager_with_a_name_too_long_is_refused(api):
    for manager in ("x" * 129, "a%0Ab"):
        failed = api.post(f"{DEPLOYMENTS}?fieldManager={manager}", deployment())
        status = failed.fails(422, "Invalid")
        assert status["message"].startswith('CreateOptions.meta.k8s.io "" is invalid: fieldManager')
        api.post(f"{PODS}?fieldManager={manager}", pod()).fails(422, "Invalid")
    api.post(f"{DEPLOYMENTS}?fieldManager={'x' * 128}", deployment()).ok(201)


def test_an_apply_is_about_the_object_that_its_path_names(api):
    """Also where there is none yet; one that names an object that is gone makes no other."""
    path = "/api/v1/namespaces/ns/configmaps"
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}}

    def applied(name, **metadata):
        wanted = {**body, "metadata": {**body["metadata"], **metadata}}
        return api.patch(f"{path}/{name}?fieldManager=me", wanted, content_type=APPLY)

    assert "name on the URL" in applied("two").fails(400, "BadRequest")["message"]
    uid = "88e00824-7f0e-11e8-94a1-c8d3ffb15800"
    failed = applied("one", uid=uid).fails(409, "Conflict")
    assert f"specified uid {uid}, and no existing object was found" in failed["message"]
    api.get(f"{path}/one").fails(404, "NotFound")
    made = applied("one").ok(201)
    assert applied("one", uid=made["metadata"]["uid"]).ok() == made
    applied("one", uid=uid).fails(409, "Conflict")
