"""What the author of a pod is told of (pkg/api/pod/warnings.go, v1.36)."""

import pytest

from clusterstate.admission.warnings import warnings_for


def told(meta=None, **spec):
    return warnings_for("Pod", {"metadata": meta or {}, "spec": spec}, None)


def of(**fields):
    return [{"name": "c", **fields}]


def ports(*found):
    return of(ports=[{"protocol": "TCP", "containerPort": 80, **one} for one in found])


HOST, ANOTHER = {"hostPort": 8080}, {"hostPort": 8080, "hostIP": "192.0.2.1"}
DUPLICATE = "spec.containers[0].ports[1]: {} port definition with spec.containers[0].ports[0]"
HIDES = 'spec.containers[0].env[1]: hides previous definition of "A", which may be dropped when'


@pytest.mark.parametrize(
    ("spec", "start"),
    [
        ({"containers": ports({"name": "a"}, {"name": "b"})}, DUPLICATE.format("duplicate")),
        ({"containers": ports({}, HOST)}, DUPLICATE.format("overlapping")),
        ({"containers": ports(HOST, ANOTHER)}, DUPLICATE.format("dangerously ambiguous")),
        (
            {"containers": ports({"hostIP": "192.0.2.1"})},
            "spec.containers[0].ports[0]: hostIP set without hostPort: {Name: HostPort:0 Container",
        ),
        (
            {"initContainers": ports({}), "containers": ports({})},
            "spec.containers[0].ports[0]: duplicate port definition with spec.initContainers[0]",
        ),
        ({"containers": of(env=[{"name": "A", "value": "1"}, {"name": "A", "value": "2"}])}, HIDES),
        ({"containers": of(env=[{"name": "A"}, {"name": "A", "value": "$(A)"}])}, HIDES),
        ({"containers": of(env=[{"name": "A"}, {"name": "A", "valueFrom": {"x": {}}}])}, HIDES),
        ({"volumes": [{"name": "v", "gitRepo": {}}]}, "spec.volumes[0].gitRepo: deprecated in"),
        ({"hostAliases": [{"ip": "::1"}] * 2}, 'spec.hostAliases[1].ip: duplicate ip "::1"'),
        (
            {"imagePullSecrets": [{"name": "a"}] * 2},
            "spec.imagePullSecrets[1].name: duplicate name",
        ),
        ({"imagePullSecrets": [{}]}, 'spec.imagePullSecrets[0].name: invalid empty name ""'),
        ({"overhead": {"memory": "100m"}}, 'spec.overhead[memory]: fractional byte value "100m"'),
        (
            {"topologySpreadConstraints": [{"topologyKey": "a"}]},
            "spec.topologySpreadConstraints[0].labelSelector: a null labelSelector results in",
        ),
    ],
)
def test_an_author_is_told(spec, start):
    found = told(**spec)
    assert [one.startswith(start) for one in found] == [True], found


def test_former_annotations_are_told_where_no_field_stands_beside_them():
    meta = {"annotations": {"seccomp.security.alpha.kubernetes.io/pod": "runtime/default"}}
    (found,) = told(meta)
    assert found.endswith('non-functional in v1.27+; use the "seccompProfile" field instead')
    assert told(meta, securityContext={"seccompProfile": {"type": "RuntimeDefault"}}) == []
    template = {"spec": {"template": {"metadata": meta, "spec": {}}}}
    (found,) = warnings_for("Deployment", template, None)
    assert found.startswith("spec.template.metadata.annotations[seccomp.security.alpha")


def test_what_is_right_is_told_by_nobody():
    assert told(containers=of(env=[{"name": "A"}, {"name": "A", "value": "$(A):/bin"}])) == []
    assert told(containers=ports(HOST, {"hostPort": 8081})) == []
    assert told(containers=of(resources={"requests": {"memory": "1Mi"}}), overhead={}) == []


def test_very_many_ports_of_one_number_give_few_warnings_each():
    assert len(told(containers=ports(*[{}] * 3))) == 3
    assert len(told(containers=ports(*[{}] * 1000))) <= 16 * 1000
