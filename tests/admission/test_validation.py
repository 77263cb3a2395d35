"""Validation where scheduling depends on it; the vectors cover the breadth."""

import pytest

from clusterstate.admission.validation.core import options
from clusterstate.admission.validation.pods import pod_updates
from clusterstate.admission.validation.pods.spec_diff import spec_diff
from tests.admission.context import create, pod
from tests.admission.context import refusals as _errors

RDSRDE = "requiredDuringSchedulingRequiredDuringExecution"
RDSIDE = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def _node_affinity(rule, *expressions):
    terms = {"nodeSelectorTerms": [{"matchExpressions": list(expressions)}]}
    return pod({"affinity": {"nodeAffinity": {rule: terms}}})


@pytest.mark.parametrize("rule", [RDSRDE, RDSIDE])
@pytest.mark.parametrize(
    ("expression", "field"),
    [
        ({"key": "k", "operator": "Near", "values": ["a"]}, "operator"),
        ({"key": "k", "operator": "In"}, "values"),
        ({"key": "k", "operator": "NotIn", "values": []}, "values"),
        ({"key": "k", "operator": "Exists", "values": ["a"]}, "values"),
        ({"key": "k", "operator": "DoesNotExist", "values": ["a"]}, "values"),
        ({"key": "k", "operator": "Gt", "values": ["1", "2"]}, "values"),
        ({"key": "-k-", "operator": "Exists"}, "key"),
    ],
    ids=["R11", "R12", "R12-NotIn", "R13", "R13-DoesNotExist", "R14", "key"],
)
def test_wrong_node_requirements_are_refused(rule, expression, field):
    """R1, R2, R11-R14: both required fields, during execution too."""
    path = f"spec.affinity.nodeAffinity.{rule}.nodeSelectorTerms[0].matchExpressions[0].{field}"
    assert list(_errors(_node_affinity(rule, expression))) == [path]


@pytest.mark.parametrize("operator", ["Gt", "Lt"])
def test_numbers_are_compared_on_nodes(operator):
    """R11, R14, R29."""
    assert not _errors(
        _node_affinity(RDSIDE, {"key": "kernel", "operator": operator, "values": ["4"]})
    )


def test_an_empty_term_is_legal_and_no_terms_are_not():
    """R9, C1: what an empty term matches is the plugin's switch."""
    assert not _errors(pod({"affinity": {"nodeAffinity": {RDSIDE: {"nodeSelectorTerms": [{}]}}}}))
    errors = _errors(pod({"affinity": {"nodeAffinity": {RDSIDE: {"nodeSelectorTerms": []}}}}))
    assert list(errors.values()) == ["must have at least one node selector term"]


@pytest.mark.parametrize(("weight", "valid"), [(0, False), (1, True), (100, True), (101, False)])
def test_weights_are_1_to_100(weight, valid):
    """R17, R85, C3."""
    term = {"weight": weight, "preference": {}}
    errors = _errors(pod({"affinity": {"nodeAffinity": {PREFERRED: [term]}}}))
    assert (not errors) is valid


@pytest.mark.parametrize("affinity", ["podAffinity", "podAntiAffinity"])
@pytest.mark.parametrize("operator", ["Gt", "Lt"])
def test_pods_are_not_selected_by_number(affinity, operator):
    """R35, R91."""
    expression = {"key": "k", "operator": operator, "values": ["1"]}
    term = {"topologyKey": "zone", "labelSelector": {"matchExpressions": [expression]}}
    (field,) = _errors(pod({"affinity": {affinity: {RDSIDE: [term]}}}))
    assert field.endswith("labelSelector.matchExpressions[0].operator")


@pytest.mark.parametrize("affinity", ["podAffinity", "podAntiAffinity"])
def test_a_topology_key_is_required(affinity):
    """R92, R93: required and preferred, affinity and anti-affinity."""
    term = {"labelSelector": {}}
    required = _errors(pod({"affinity": {affinity: {RDSIDE: [term]}}}))
    weighted = {"weight": 1, "podAffinityTerm": term}
    preferred = _errors(pod({"affinity": {affinity: {PREFERRED: [weighted]}}}))
    assert f"spec.affinity.{affinity}.{RDSIDE}[0].topologyKey" in required
    assert f"spec.affinity.{affinity}.{PREFERRED}[0].podAffinityTerm.topologyKey" in preferred


@pytest.mark.parametrize(
    ("toleration", "field"),
    [
        ({"operator": "Equal", "value": "v"}, "operator"),
        ({"key": "k", "operator": "Exists", "value": "v"}, "operator"),
        ({"key": "k", "operator": "Exists", "tolerationSeconds": 5}, "effect"),
        ({"key": "k", "operator": "Exists", "effect": "Never"}, "effect"),
        ({"key": "k", "operator": "Gt", "value": "5"}, "operator"),
    ],
)
def test_wrong_tolerations_are_refused(toleration, field):
    """R116, R117, R122."""
    assert list(_errors(pod({"tolerations": [toleration]}))) == [f"spec.tolerations[0].{field}"]


ENOUGH = {"hugepages-2Mi": "4Mi", "cpu": "1"}
LESS = {"hugepages-2Mi": "2Mi", "cpu": "1"}


@pytest.mark.parametrize(
    ("own", "errors"),
    [
        ({"requests": {"memory": "64Mi"}}, {}),
        (
            {"requests": {"cpu": "500m"}},
            {"requests[cpu]": "must be greater than or equal to aggregate container requests of 1"},
        ),
        ({"requests": ENOUGH, "limits": ENOUGH}, {}),
        (
            {"requests": LESS, "limits": LESS},
            {
                f"{what}[hugepages-2Mi]": (
                    f"must be greater than or equal to aggregate container {what} of 4Mi"
                )
                for what in ("requests", "limits")
            },
        ),
    ],
    ids=["unstated", "cpu", "huge", "huge-pages"],
)
def test_what_a_pod_states_for_itself_covers_its_containers(own, errors):
    """What it leaves out is the containers' own matter."""
    half = {"limits": {"hugepages-2Mi": "2Mi", "cpu": "500m"}}
    containers = [{"name": name, "image": "i", "resources": half} for name in ("one", "two")]
    found = _errors(pod({"containers": containers, "resources": own}))
    assert found == {f"spec.resources.{field}": detail for field, detail in errors.items()}


def test_processes_are_shared_in_the_pod_or_on_the_host():
    """Whether or not the pod has a security context of its own."""
    for context in ({}, {"runAsUser": 1000}):
        spec = {"hostPID": True, "shareProcessNamespace": True, "securityContext": context}
        assert list(_errors(pod(spec))) == ["spec.securityContext.shareProcessNamespace"]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"scopes": ["BestEffort", "NotBestEffort"]}, "spec.scopes"),
        (
            {
                "scopeSelector": {
                    "matchExpressions": [
                        {"scopeName": scope, "operator": "Exists"}
                        for scope in ("Terminating", "NotTerminating")
                    ]
                }
            },
            "spec.scopeSelector.matchExpressions",
        ),
    ],
    ids=["scopes", "selector"],
)
def test_scopes_that_exclude_each_other_are_refused_where_they_stand(spec, field):
    quota = {"metadata": {"name": "quota", "namespace": "default"}, "spec": spec}
    assert _errors(quota, kind="ResourceQuota") == {field: "conflicting scopes"}


def test_a_diff_of_specs_is_spelled_like_the_api_servers():
    """The letters that Go's encoder escapes in text, and no others."""
    specs = [{"containers": [{"name": name, "command": ["a && b > ö"]}]} for name in "ab"]
    assert '"a \\u0026\\u0026 b \\u003e ö"' in spec_diff(*specs)


def test_a_taint_is_named_once():
    """R112."""
    taint = {"key": "k", "value": "v", "effect": "NoSchedule"}
    node = {"metadata": {"name": "n"}, "spec": {"taints": [taint, taint]}}
    assert _errors(node, "Node") == {
        "metadata.taints[1]": "taints must be unique by key and effect pair"
    }


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("", []),
        ('[{"key": "k", "effect": "NoSchedule"}]', []),
        ('[{"key": "k", "effect": "Never"}]', [".{}[0].effect"]),
        (
            '[{"key": "k", "effect": "NoSchedule"}, {"key": "k", "effect": "NoSchedule"}]',
            [".{}[1]"],
        ),
        ("none", [""]),
    ],
    ids=["empty", "right", "effect", "twice", "not-json"],
)
def test_taints_in_the_annotation_of_former_times_are_checked_as_well(text, fields):
    name = "scheduler.alpha.kubernetes.io/taints"
    node = {"metadata": {"name": "n", "annotations": {name: text}}}
    paths = [f"metadata.annotations{field.format(name)}" for field in fields]
    assert list(_errors(node, "Node")) == paths


@pytest.mark.parametrize("field", ["nodeSelector", "tolerations"])
def test_a_runtime_class_is_checked_like_a_pod(field):
    """R42, R45, R56: exact pairs and tolerations, nothing softer."""
    wrong = {"nodeSelector": {"a b": "c"}, "tolerations": [{"operator": "Sometimes", "key": "k"}]}
    runtime_class = {
        "metadata": {"name": "r"},
        "handler": "h",
        "scheduling": {field: wrong[field]},
    }
    (path,) = _errors(runtime_class, "RuntimeClass")
    assert path.startswith(f"scheduling.{field}")


def test_a_budget_states_one_bound():
    budget = {
        "metadata": {
            "name": "b", "namespace": "default",
            "annotations": {"stowage.dev/disruption-unit": "Node"},
        },
        "spec": {"minAvailable": 1, "maxUnavailable": "101%"},
    }  # fmt: skip
    assert _errors(budget, "PodDisruptionBudget") == {
        "metadata.annotations[stowage.dev/disruption-unit]": (
            'supported values: "Pod", "PodGroup"'
        ),
        "spec": "minAvailable and maxUnavailable cannot be both set",
        "spec.maxUnavailable": "must not be greater than 100%",
    }


def test_a_replica_set_must_select_its_own_pods():
    template = {"metadata": {"labels": {"app": "b"}}, "spec": pod()["spec"]}
    replica_set = {
        "metadata": {"name": "r", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "a"}}, "template": template},
    }
    assert _errors(replica_set, "ReplicaSet") == {
        "spec.template.metadata.labels": "`selector` does not match template `labels`"
    }


def test_the_template_of_a_claim_has_labels_and_annotations_alone():
    """validation.go validatePersistentVolumeClaimTemplateObjectMeta, v1.36."""

    def errors(**metadata):
        claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1"}}}
        template = {"metadata": metadata, "spec": claim}
        return _errors(
            pod({"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": template}}]})
        )

    path = "spec.volumes[0].ephemeral.volumeClaimTemplate.metadata"
    assert not errors(labels={"a": "b"}, annotations={"c": "d"}, creationTimestamp=None)
    told = "cannot be set"
    assert errors(finalizers=["example.com/keep"]) == {f"{path}.finalizers": told}
    assert errors(name="n") == {f"{path}.name": told}
    assert list(errors(labels={"-a": "b"})) == [f"{path}.labels"]


# ------------------------------------------------------------------------- changes of pods


def _changed(change, container):
    """Return what is wrong with a change of the spec of a pod that has this container."""
    stored = create(pod({"containers": [container]})).manifest
    spec = {**stored["spec"], **change(stored["spec"])}
    errors = pod_updates.validate_pod_update({**stored, "spec": spec}, stored, options.CURRENT)
    return [error.field for error in errors if error.field != "metadata.resourceVersion"]


@pytest.mark.parametrize(
    ("member", "value", "is_said"),
    [
        ("affinity", {}, True),
        ("hostUsers", True, True),
        ("hostNetwork", False, False),
        ("hostAliases", [], False),
        ("nodeSelector", {}, False),
        ("subdomain", "", False),
        ("dnsConfig", {}, True),
    ],
)
def test_a_change_is_what_go_tells_apart(member, value, is_said):
    """What is no pointer in Go means the same absent, empty and zero."""
    found = _changed(lambda _: {member: value}, {"name": "c", "image": "i"})
    assert found == (["spec"] if is_said else [])


@pytest.mark.parametrize(
    ("rest", "is_said"),
    [({}, False), ({"podAffinity": {}}, True), ({"podAntiAffinity": {}}, True)],
)
def test_a_gated_pod_without_affinity_may_be_given_node_affinity_alone(rest, is_said):
    """validation.go ``ValidatePodUpdate``, v1.36: an empty podAffinity is a change of its own."""
    stored = create(pod({"schedulingGates": [{"name": "hold"}]})).manifest
    term = {"matchExpressions": [{"key": "k", "operator": "Exists"}]}
    affinity = {"nodeAffinity": {RDSIDE: {"nodeSelectorTerms": [term]}}, **rest}
    stored["metadata"]["resourceVersion"] = "1"
    changed = {**stored, "spec": {**stored["spec"], "affinity": affinity}}
    errors = pod_updates.validate_pod_update(changed, stored, options.CURRENT)
    assert [error.field for error in errors] == (["spec"] if is_said else [])


@pytest.mark.parametrize(
    ("port", "is_said"),
    [({"hostPort": 0}, False), ({"hostPort": 8080}, True), ({"hostIP": ""}, False)],
)
def test_a_zero_in_a_list_says_nothing_either(port, is_said):
    plain = {"containerPort": 80, "protocol": "TCP"}

    def other(spec):
        (container,) = spec["containers"]
        return {"containers": [{**container, "ports": [{**plain, **port}]}]}

    found = _changed(other, {"name": "c", "image": "i", "ports": [plain]})
    assert found == (["spec"] if is_said else [])


@pytest.mark.parametrize(
    ("name", "ok"),
    [("_sip._tcp.abc_d.example.com", True), (".", True), ("example.com.", True),
     ("__a.example.com", False), ("..", False), ("\u2603.example.com", False)],
)  # fmt: skip
def test_names_that_dns_searches_may_have_underscores(name, ok):
    assert (not _errors(pod({"dnsConfig": {"searches": [name]}}))) == ok


def test_pods_of_a_set_mount_its_claims():
    labels = {"app": "db"}
    container = {"name": "m", "image": "i", "volumeMounts": [{"name": "data", "mountPath": "/d"}]}
    claim = {
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
        },
    }  # fmt: skip
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    manifest = {
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": "db", "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": labels}, "template": template,
            "volumeClaimTemplates": [claim],
        },
    }  # fmt: skip
    assert _errors(manifest, "StatefulSet") == {}
    own = {"name": "data", "hostPath": {"path": "relative/../path"}}
    template["spec"]["volumes"] = [own]
    assert _errors(manifest, "StatefulSet") == {}, "the claim takes the volume's place"
    manifest["spec"]["volumeClaimTemplates"] = []
    template["spec"]["volumes"] = []
    path = "spec.template.spec.containers[0].volumeMounts[0].name"
    assert list(_errors(manifest, "StatefulSet")) == [path]


def _updated(kind, strategy):
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "m", "image": "i"}]},
    }
    field = "strategy" if kind == "Deployment" else "updateStrategy"
    manifest = {
        "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "w", "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}}, "template": template,
            field: {"type": "RollingUpdate", "rollingUpdate": strategy},
        },
    }  # fmt: skip
    return {
        path.removeprefix(f"spec.{field}.rollingUpdate."): detail
        for path, detail in _errors(manifest, kind).items()
    }


WORDS = ["many", "9", "-1%", "9" * 5000 + "%", "9" * 400 + "%"]


@pytest.mark.parametrize("kind", ["Deployment", "DaemonSet", "StatefulSet"])
@pytest.mark.parametrize("bound", [*WORDS, -1, "101%"])
def test_a_rollouts_bound_is_a_number_or_at_most_all(kind, bound):
    assert "maxUnavailable" in _updated(kind, {"maxUnavailable": bound})


@pytest.mark.parametrize("kind", ["Deployment", "DaemonSet"])
@pytest.mark.parametrize("bound", [*WORDS, -1])
def test_a_rollouts_surge_is_a_number_or_a_percentage(kind, bound):
    assert "maxSurge" in _updated(kind, {"maxSurge": bound, "maxUnavailable": 0})


def test_a_rollout_can_go_on():
    assert not _updated("Deployment", {"maxSurge": "150%", "maxUnavailable": "00%"})
    assert not _updated("DaemonSet", {"maxSurge": "50%", "maxUnavailable": 0})
    assert not _updated("StatefulSet", {"maxUnavailable": "50%", "partition": 2})
    zero = {"maxSurge": 0, "maxUnavailable": "00%"}
    assert _updated("Deployment", zero) == {"maxUnavailable": "may not be 0 when `maxSurge` is 0"}
    assert _updated("DaemonSet", zero) == {"maxUnavailable": "cannot be 0 when maxSurge is 0"}
    both = {"maxSurge": 1, "maxUnavailable": 1}
    assert _updated("DaemonSet", both) == {
        "maxSurge": "may not be set when maxUnavailable is non-zero"
    }
    assert _updated("StatefulSet", {"maxUnavailable": "0%"}) == {"maxUnavailable": "cannot be 0"}
    assert list(_updated("StatefulSet", {"partition": -1})) == ["partition"]


@pytest.mark.parametrize("step", ["1" * 10, "1" * 5000, "0", "x", "²"])
def test_a_schedule_has_steps_that_are_numbers(step):
    manifest = {
        "apiVersion": "batch/v1", "kind": "CronJob",
        "metadata": {"name": "c", "namespace": "default"},
        "spec": {"schedule": f"*/{step} * * * *", "jobTemplate": {}},
    }  # fmt: skip
    assert "spec.schedule" in _errors(manifest, "CronJob")
