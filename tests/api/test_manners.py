"""Small things that Kubernetes' clients and end-to-end tests expect of every kind."""

import json

import pytest

from clusterstate.actions import bootstrap
from tests.api.builders import DEPLOYMENTS, NODES, PODS, binding, deployment, node, pod
from tests.api.conftest import APPLY, JSON_PATCH, MERGE, STRATEGIC, TABLE
from tests.clock import NOW

LEASES = "/apis/coordination.k8s.io/v1/namespaces/ns/leases"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
PARTIALS = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


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
        api.get(f"{PODS}?{query}").fails(410, "Expired")


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


# --------------------------------------------------------------------------------- forms


def test_empty_specs_and_statuses_are_given_out(api):
    made = api.post(NODES, {"metadata": {"name": "bare"}}).ok(201)
    assert (made["spec"], made["status"]) == ({}, {})
    assert api.put(f"{NODES}/bare", {"metadata": {"name": "bare"}}).ok()["spec"] == {}
    assert api.post(DEPLOYMENTS, deployment()).ok(201)["status"] == {}
    assert api.post(LEASES, {"metadata": {"name": "l"}}).ok(201)["spec"] == {}


def test_items_of_a_list_do_not_repeat_its_kind(api):
    api.post(PODS, pod()).ok(201)
    api.post(NODES, node()).ok(201)
    for path in (PODS, NODES):
        (item,) = api.get(path).ok()["items"]
        assert next(iter(item)) == "metadata"
        assert not {"kind", "apiVersion"} & item.keys()


def test_metadata_alone_is_given_to_those_who_ask(api):
    made = api.post(PODS, pod(labels={"a": "1"})).ok(201)
    for accept in (PARTIAL, f"{PARTIAL},application/json"):
        found = api.get(f"{PODS}/p", accept=accept).ok()
        assert found == {
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": made["metadata"],
        }
    listed = api.get(f"{PODS}?labelSelector=a", accept=PARTIALS).ok()
    assert (listed["kind"], listed["apiVersion"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1")
    assert listed["items"] == [found]
    assert listed["metadata"]["resourceVersion"]
    patched = api.patch(f"{PODS}/p", {"metadata": {"labels": {"a": "2"}}}, accept=PARTIAL).ok()
    assert (patched["kind"], patched["metadata"]["labels"]) == (
        "PartialObjectMetadata", {"a": "2"},
    )  # fmt: skip


def test_metadata_alone_comes_in_the_form_that_is_named_first(api):
    api.post(PODS, pod()).ok(201)
    protobuf = PARTIALS.replace("application/json", "application/vnd.kubernetes.protobuf")
    found = api.get(PODS, accept=f"{protobuf},{PARTIALS},application/json")
    assert found.headers["Content-Type"].startswith("application/vnd.kubernetes.protobuf")
    assert api.get(PODS, accept=f"{PARTIALS},{protobuf}").ok()["kind"] == (
        "PartialObjectMetadataList"
    )


# --------------------------------------------------------------------------- null terms


def _required(*terms):
    selector = {"nodeSelectorTerms": list(terms)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}


def test_a_null_term_is_stored_as_one_that_matches_nothing(api):
    """R9: a null term matches no objects, so it adds nothing to those it is ORed with."""
    some = {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}
    for name, terms in (("alone", [None]), ("among", [None, some])):
        api.post(PODS, pod(name, affinity=_required(*terms))).ok(201)
    affinity = api.get(f"{PODS}/among").ok()["spec"]["affinity"]
    assert affinity == _required(some)
    (term,) = api.get(f"{PODS}/alone").ok()["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]["nodeSelectorTerms"]
    assert {one["operator"] for one in term["matchExpressions"]} == {"Exists", "DoesNotExist"}
    assert len({one["key"] for one in term["matchExpressions"]}) == 1


def test_a_null_preferred_term_prefers_nothing(api):
    """R18: it matches no node, so it is left out."""
    term = {"weight": 5, "preference": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}
    name = "preferredDuringSchedulingIgnoredDuringExecution"
    body = pod(affinity={"nodeAffinity": {name: [None, term]}})
    assert api.post(PODS, body).ok(201)["spec"]["affinity"]["nodeAffinity"][name] == [term]


# ---------------------------------------------------------------------------- field names


TWICE = (
    b'{"metadata":{"name":"d","labels":{"a":"1","a":"2"}},'
    b'"spec":{"containers":[{"name":"c","image":"i","image":"j"}]}}'
)


def test_a_field_that_stands_twice_is_told(api):
    refused = api.post(f"{PODS}?fieldValidation=Strict", TWICE).fails(400, "BadRequest")
    assert refused["message"].endswith(
        'strict decoding error: duplicate field "metadata.labels.a", '
        'duplicate field "spec.containers[0].image"'
    )
    api.get(f"{PODS}/d").fails(404, "NotFound")
    warned = api.post(f"{PODS}?fieldValidation=Warn", TWICE)
    assert warned.ok(201)["metadata"]["labels"] == {"a": "2"}
    assert 'duplicate field \\"metadata.labels.a\\"' in warned.headers["Warning"]
    replaced = api.put(f"{PODS}/d?fieldValidation=Strict", TWICE)
    assert replaced.fails(400, "BadRequest")["message"].count("duplicate field") == 2
    once = json.dumps(json.loads(TWICE)).encode()
    api.put(f"{PODS}/d?fieldValidation=Strict", once).ok()


WITH_BOTH = (
    b'{"metadata":{"name":"d"},"spec":{"unknown":"1","replicas":2,"replicas":3,'
    b'"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},'
    b'"spec":{"containers":[{"name":"c","image":"i","other":1,"image":"j"}]}}}}'
)


def test_unknown_fields_and_those_that_stand_twice_are_told_in_their_order(api):
    refused = api.post(f"{DEPLOYMENTS}?fieldValidation=Strict", WITH_BOTH).fails(400, "BadRequest")
    assert refused["message"].endswith(
        'strict decoding error: unknown field "spec.unknown", duplicate field "spec.replicas", '
        'duplicate field "spec.template.spec.containers[0].image", '
        'unknown field "spec.template.spec.containers[0].other"'
    )


@pytest.mark.parametrize("content_type", [MERGE, STRATEGIC, APPLY])
def test_what_stands_twice_in_a_patch_is_told(api, content_type):
    api.post(DEPLOYMENTS, deployment("d")).ok(201)
    query = f"{DEPLOYMENTS}/d?fieldValidation=Strict&fieldManager=test"
    body = b'{"spec":{"unknown":"1","paused":true,"paused":false}}'
    refused = api.patch(query, body, content_type=content_type).fails(400, "BadRequest")
    assert 'duplicate field "spec.paused"' in refused["message"]
    assert 'unknown field "spec.unknown"' in refused["message"]
    assert "paused" not in api.get(f"{DEPLOYMENTS}/d").ok()["spec"]


IN_YAML = b"""\
metadata:
  name: y
  labels: {a: b, a: c}
data:
  key: one
  list: |
    key: not one
  key: two
"""


def test_a_key_that_stands_again_in_yaml_is_told_by_its_line(api):
    told = (
        'yaml: unmarshal errors:\n  line 3: key "a" already set in map'
        '\n  line 8: key "key" already set in map'
    )
    maps = "/api/v1/namespaces/ns/configmaps"
    strict = {"content_type": "application/yaml"}
    refused = api.post(f"{maps}?fieldValidation=Strict", IN_YAML, **strict).fails(400, "BadRequest")
    assert refused["message"].endswith(f"strict decoding error: {told}")
    query = f"{maps}/y?fieldManager=test&fieldValidation=Strict"
    refused = api.patch(query, IN_YAML, content_type=APPLY).fails(400, "BadRequest")
    assert refused["message"].endswith(told)
    warned = api.post(f"{maps}?fieldValidation=Warn", IN_YAML, **strict)
    assert warned.ok(201)["data"]["key"] == "two"
    assert 'line 3: key \\"a\\" already set' in warned.headers["Warning"]


def test_a_patch_is_not_refused_for_an_unknown_field_that_was_there_before(api):
    body = deployment("d")
    body["spec"]["ours"] = 1
    api.post(f"{DEPLOYMENTS}?fieldValidation=Ignore", body).ok(201)
    one = f"{DEPLOYMENTS}/d?fieldValidation=Strict"
    answer = api.patch(one, {"spec": {"replicas": 3}}, content_type=STRATEGIC)
    assert answer.ok()["spec"]["replicas"] == 3
    refused = api.patch(one, {"spec": {"theirs": 1}}).fails(400, "BadRequest")
    assert refused["message"].endswith('strict decoding error: unknown field "spec.theirs"')


# ------------------------------------------------------------------------------ balancers


def test_the_address_of_a_balancer_has_a_mode(api):
    services = "/api/v1/namespaces/ns/services"
    spec = {"type": "LoadBalancer", "ports": [{"port": 80}]}
    api.post(services, {"metadata": {"name": "s"}, "spec": spec}).ok(201)
    status = {"loadBalancer": {"ingress": [{"ip": "203.0.113.1"}, {"hostname": "a.example.org"}]}}
    told = api.patch(f"{services}/s/status", {"status": status}).ok()["status"]
    assert told["loadBalancer"]["ingress"] == [
        {"ip": "203.0.113.1", "ipMode": "VIP"}, {"hostname": "a.example.org"},
    ]  # fmt: skip


# ------------------------------------------------------------------------------ contradictions


def test_a_scale_is_that_of_the_object_on_its_path(api):
    api.post(DEPLOYMENTS, deployment("d")).ok(201)
    scale = {"metadata": {"name": "e", "namespace": "ns"}, "spec": {"replicas": 2}}
    refused = api.put(f"{DEPLOYMENTS}/d/scale", scale).fails(400, "BadRequest")
    assert "does not match the name on the URL (d)" in refused["message"]


@pytest.mark.parametrize(
    ("address", "why"),
    [("127.0.0.1", "loopback"), ("0.0.0.0", "unspecified"), ("169.254.1.2", "link-local range"),
     ("224.0.0.9", "link-local multicast"), ("::1", "loopback"), ("fe80::1", "link-local range"),
     ("ff02::1", "link-local multicast"), ("10.1.2.3", ""), ("fd00::1", "")],
)  # fmt: skip
def test_an_endpoint_is_where_others_reach_it(api, address, why):
    family = "IPv6" if ":" in address else "IPv4"
    subsets = [{"addresses": [{"ip": address}], "ports": [{"port": 80}]}]
    metadata = {"name": "e"}
    for path, body in (
        ("/api/v1/namespaces/ns/endpoints", {"metadata": metadata, "subsets": subsets}),
        ("/apis/discovery.k8s.io/v1/namespaces/ns/endpointslices",
         {"metadata": metadata, "addressType": family, "endpoints": [{"addresses": [address]}]}),
    ):  # fmt: skip
        answer = api.post(path, body)
        if why:
            assert why in answer.fails(422, "Invalid")["message"]
        else:
            answer.ok(201)


# ------------------------------------------------------------------------ older fields' rules


def test_a_negative_grace_period_of_a_pod_is_one_second(api):
    made = api.post(PODS, pod(terminationGracePeriodSeconds=-1)).ok(201)
    assert made["spec"]["terminationGracePeriodSeconds"] == 1
    made["spec"]["terminationGracePeriodSeconds"] = -1
    assert api.put(f"{PODS}/p", made).ok()["spec"]["terminationGracePeriodSeconds"] == 1


def test_a_nodes_network_is_one_however_it_is_said(api):
    one = f"{NODES}/n"
    api.post(NODES, node()).ok(201)
    spec = api.patch(one, {"spec": {"podCIDR": "10.0.0.0/24"}}).ok()["spec"]
    assert (spec["podCIDR"], spec["podCIDRs"]) == ("10.0.0.0/24", ["10.0.0.0/24"])
    for change in ({"podCIDR": "10.0.1.0/24"}, {"podCIDRs": ["10.0.1.0/24"]}):
        refused = api.patch(one, {"spec": {"podCIDR": None, **change}}).fails(422, "Invalid")
        (cause,) = refused["details"]["causes"]
        assert cause["field"] == "spec.podCIDRs"
        assert cause["message"].endswith('may not change podCIDR except from "" to valid')
    assert api.patch(one, {"spec": {"podCIDR": "10.0.0.0/24"}}).ok()["spec"]["podCIDRs"]


def test_namespaces_are_selected_by_name_as_well(api):
    found = api.get("/api/v1/namespaces?fieldSelector=name=ns").ok()
    assert [one["metadata"]["name"] for one in found["items"]] == ["ns"]
    assert "ns" not in str(api.get("/api/v1/namespaces?fieldSelector=name=other").ok()["items"])


def test_the_network_of_services_is_told_and_other_networks_are_not_ready(api):
    networks = "/apis/networking.k8s.io/v1/servicecidrs"
    assert bootstrap.ensure_network(now=NOW) == ["ServiceCIDR kubernetes"]
    assert bootstrap.ensure_network(now=NOW) == []
    told = api.get(f"{networks}/kubernetes/status").ok()
    assert told["spec"]["cidrs"] == ["10.96.0.0/12"]
    (ready,) = told["status"]["conditions"]
    assert (ready["type"], ready["status"]) == ("Ready", "True")
    made = api.post(networks, {"metadata": {"name": "o"}, "spec": {"cidrs": ["203.0.113.0/24"]}})
    assert not made.ok(201).get("status")
    assert "10.96.0.0/12 alone" in made.headers["Warning"]
    for wrong in ([], ["10.0.0.1/8"], ["10.0.0.0/8", "11.0.0.0/8"]):
        body = {"metadata": {"name": "w"}, "spec": {"cidrs": wrong}}
        api.post(networks, body).fails(422, "Invalid")
    api.patch(f"{networks}/o", {"spec": {"cidrs": ["10.0.0.0/8"]}}).fails(422, "Invalid")


def test_what_a_volume_may_become_is_stored_and_stays(api):
    classes = "/apis/storage.k8s.io/v1/volumeattributesclasses"
    body = {"metadata": {"name": "gold"}, "driverName": "csi.example.org", "parameters": {"a": "b"}}
    api.post(classes, body).ok(201)
    api.post(classes, {**body, "metadata": {"name": "x"}, "parameters": {}}).fails(422, "Invalid")
    api.patch(f"{classes}/gold", {"parameters": {"a": "c"}}).fails(422, "Invalid")
    api.patch(f"{classes}/gold", {"metadata": {"labels": {"a": "b"}}}).ok()


FLOWS = "/apis/flowcontrol.apiserver.k8s.io/v1"


def test_what_says_how_requests_take_turns_is_stored_and_is_told_to_do_nothing(api):
    """As Kubernetes' conformance tests of both kinds have it."""
    rule = {
        "subjects": [{"kind": "User", "user": {"name": "example-e2e-non-existent-user"}}],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    }
    flow = {"priorityLevelConfiguration": {"name": "global-default"}, "rules": [rule]}
    level = {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}}
    seen = (("flowschemas", flow, "matchingPrecedence", 1000),
            ("prioritylevelconfigurations", level, "type", "Limited"))  # fmt: skip
    for plural, spec, field, value in seen:
        made = api.post(f"{FLOWS}/{plural}", {"metadata": {"generateName": "e-"}, "spec": spec})
        assert "take turns by user, without configuration" in made.headers["Warning"]
        one = f"{FLOWS}/{plural}/{made.ok(201)['metadata']['name']}"
        assert api.get(one).ok()["spec"][field] == value
        status = {"conditions": [{"type": "X", "status": "False", "reason": "e2e"}]}
        patched = api.patch(f"{one}/status", {"status": status}, content_type=MERGE).ok()
        assert patched["status"] == status
    assert api.get(f"{one}/status").ok()["spec"]["limited"]["nominalConcurrencyShares"] == 30
    rows = [api.get(f"{FLOWS}/{plural}", accept=TABLE).ok()["rows"] for plural, *_ in seen]
    told = [row["cells"][1:4] for (row,) in rows]
    assert told == [["global-default", 1000, "<none>"], ["Limited", "30", "<none>"]]


@pytest.mark.parametrize(
    ("plural", "spec", "field"),
    [
        ("flowschemas", {"matchingPrecedence": 10001}, "spec.matchingPrecedence"),
        ("flowschemas", {}, "spec.priorityLevelConfiguration.name"),
        ("flowschemas", {"distinguisherMethod": {"type": "X"}}, "spec.distinguisherMethod"),
        ("flowschemas", {"rules": [{}]}, "spec.rules[0].subjects"),
        ("flowschemas", {"rules": [{"subjects": [{"kind": "User"}]}]},
         "spec.rules[0].subjects[0].user"),
        ("flowschemas", {"rules": [{"resourceRules": [{"verbs": ["*", "get"]}]}]},
         "spec.rules[0].resourceRules[0].verbs"),
        ("prioritylevelconfigurations", {"type": "X"}, "spec.type"),
        ("prioritylevelconfigurations", {"type": "Limited"}, "spec.limited"),
        ("prioritylevelconfigurations", {"type": "Exempt", "limited": {}}, "spec.limited"),
        ("prioritylevelconfigurations", {"type": "Limited", "limited": {}},
         "spec.limited.limitResponse.type"),
        ("prioritylevelconfigurations",
         {"type": "Limited", "limited": {"limitResponse": {"type": "Queue"}}},
         "spec.limited.limitResponse.queuing"),
        ("prioritylevelconfigurations",
         {"type": "Limited", "limited": {
             "lendablePercent": 101,
             "limitResponse": {"type": "Queue", "queuing": {"queues": 2, "handSize": 3}}}},
         "spec.limited.limitResponse.queuing.handSize"),
    ],
)  # fmt: skip
def test_wrong_turns_are_refused(api, plural, spec, field):
    refused = api.post(f"{FLOWS}/{plural}", {"metadata": {"name": "x"}, "spec": spec})
    causes = refused.fails(422, "Invalid")["details"]["causes"]
    assert field in [cause["field"] for cause in causes]


# ------------------------------------------------------------------- bodies and their forms


@pytest.mark.parametrize("content_type", [MERGE, STRATEGIC, JSON_PATCH])
def test_a_patch_that_makes_no_object_of_the_kind_is_a_wrong_object(api, content_type):
    api.post(DEPLOYMENTS, deployment()).ok(201)
    for member, value in (("metadata", {"annotations": {"a": ["b"]}}), ("spec", 5)):
        patch = {member: value}
        if content_type == JSON_PATCH:
            patch = [{"op": "add", "path": f"/{member}", "value": value}]
        status = api.patch(f"{DEPLOYMENTS}/web", patch, content_type=content_type)
        (cause,) = status.fails(422, "Invalid")["details"]["causes"]
        assert cause["field"] == "patch"
        assert member in cause["message"]


def test_an_owner_that_is_named_twice_is_named_once_and_the_client_is_told(api):
    path = "/api/v1/namespaces/ns/configmaps"
    first, second = (
        {"apiVersion": "v1", "kind": "Node", "name": name, "uid": f"{name}-uid"} for name in "ab"
    )
    end = "duplicate UID(s) observed: a-uid"
    answer = api.post(path, {"metadata": {"name": "c", "ownerReferences": [first, first]}})
    made = answer.ok(201)
    assert made["metadata"]["ownerReferences"] == [first]
    assert end in answer.headers["Warning"]
    made["metadata"]["ownerReferences"] = [first, second, first]
    answer = api.put(f"{path}/c", made)
    assert answer.ok()["metadata"]["ownerReferences"] == [first, second]
    assert end in answer.headers["Warning"]
    patch = [{"op": "add", "path": "/metadata/ownerReferences/-", "value": first}]
    answer = api.patch(f"{path}/c", patch, content_type=JSON_PATCH)
    assert answer.ok()["metadata"]["ownerReferences"] == [first, second]
    assert "after mutating admission happens" in answer.headers["Warning"]
    assert end in answer.headers["Warning"]
    other = {**first, "controller": True}
    made["metadata"] = {**made["metadata"], "ownerReferences": [other, first]}
    del made["metadata"]["resourceVersion"]
    answer = api.put(f"{path}/c", made)
    assert answer.ok()["metadata"]["ownerReferences"] == [other, first]
    assert "Warning" not in answer.headers


@pytest.mark.parametrize(
    ("accept", "code"),
    [
        ("application/json;as=Table;v=v1;g=meta.k8s.io", 200),
        ("application/json;as=Table;v=v1beta1;g=meta.k8s.io", 200),
        ("application/json;as=Table;v=v1alpha1;g=meta.k8s.io", 406),
        ("application/json;as=Table;v=v1;g=k8s.io", 406),
        ("application/json;as=Tables;v=v1;g=meta.k8s.io", 406),
        ("application/json;v=v1;g=meta.k8s.io", 406),
        ("application/json;v=v1;g=meta.k8s.io,application/json", 200),
        ("application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io", 406),
        ("application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1", 406),
    ],
)
def test_only_known_forms_of_known_versions_are_given(api, accept, code):
    assert api.get(PODS, accept=accept).status == code


def test_a_scale_is_a_table_for_who_wants_one(api):
    api.post(DEPLOYMENTS, deployment(replicas=3)).ok(201)
    table = api.get(f"{DEPLOYMENTS}/web/scale", accept=TABLE).ok()
    assert [one["name"] for one in table["columnDefinitions"]] == [
        "Name", "Desired", "Available", "Age",
    ]  # fmt: skip
    (row,) = table["rows"]
    assert row["cells"][:3] == ["web", 3, 0]
    assert api.get(f"{DEPLOYMENTS}/web/scale", accept=PARTIAL).ok()["kind"] == (
        "PartialObjectMetadata"
    )


def test_what_is_no_revision_or_no_policy_is_told_in_kubernetes_words(api):
    status = api.get(f"{PODS}?resourceVersion=invalid").fails(400, "BadRequest")
    assert 'resourceVersion: Invalid value: "invalid"' in status["message"]
    answer = api.get(f"{PODS}?includeObject=most", accept=TABLE).fails(400, "BadRequest")
    assert answer["message"] == (
        "includeObject: Invalid value: \"most\": must be 'Metadata', 'Object', 'None', or empty"
    )


def test_a_body_that_is_too_large_is_refused_before_it_is_read(api):
    body = b"x" * ((3 << 20) + 1)
    for method in ("PUT", "PATCH", "DELETE"):
        api.call(method, f"{PODS}/p", body).fails(413, "RequestEntityTooLarge")
