"""What ``pods/resize`` may change, in Kubernetes' words.

The table acts out ``TestValidatePodResize`` (pkg/apis/core/validation/validation_test.go, v1.36)
and the errors of test/e2e/common/node/pod_resize.go.
"""

import copy
from typing import Any

import msgspec
import pytest

from clusterstate.actions.writing.object_meta import merge_update
from clusterstate.admission import UPDATE, admit
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.rules.resources import qos_class
from clusterstate.objects.values.errors import Forbidden, Invalid
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.pod import Pod
from tests.admission.context import NOBODY, Known, create, pod

CLASS = "Pod QOS Class may not change as a result of resizing"
ONLY = "only cpu and memory resources are mutable"
REQUESTS = "Forbidden: resource requests cannot be removed"
MOVED = "may not be added or removed on resize"
LACKS = "Node didn't have enough allocatable resources"
WHOLE = "InPlacePodLevelResourcesVerticalScaling"
MIRROR = {"annotations": {"kubernetes.io/config.mirror": "x"}}


def amounts(cpu: str = "", memory: str = "", **more: str) -> dict[str, str]:
    found = {"cpu": cpu, "memory": memory, **{k.replace("_", "-"): v for k, v in more.items()}}
    return {name: amount for name, amount in found.items() if amount}


def asks(requests: Any = None, limits: Any = None, **more: Any) -> Manifest:
    stated = {"requests": requests, "limits": limits, **more}
    return {part: each for part, each in stated.items() if each}


def one(resources: Manifest, **more: Any) -> Manifest:
    return {"containers": [{"name": "c", "image": "i", "resources": resources, **more}]}


def init(resources: Manifest, **more: Any) -> Manifest:
    container = {"name": "i", "image": "i", "resources": resources, **more}
    return {**one(BURSTABLE), "initContainers": [container]}


def whole(resources: Manifest, own: Manifest | None = None) -> Manifest:
    return {**one(own or {}), "resources": resources}


def stored(spec: Manifest, status: Manifest | None = None, **metadata: Any) -> Manifest:
    """A pod as it is stored, with the QoS class that it has."""
    made = create(pod(spec), Known()).manifest
    server = {"uid": "u", "resourceVersion": "1", "generation": 1}
    made["metadata"] |= {**server, **metadata}
    made["status"] = {"phase": "Pending", **(status or {})}
    return made


def resized(old: Manifest, spec: Manifest, known: Known | None = None) -> Manifest:
    """The pod as it would be stored with what ``spec`` says of it."""
    new = copy.deepcopy(old)
    new["spec"] |= copy.deepcopy(spec)
    merged = merge_update(KINDS["Pod"], old, new, "resize")
    return admit("Pod", UPDATE, merged, old, "resize", known or Known(), NOBODY).manifest


def problems(old: Manifest, spec: Manifest) -> list[str]:
    try:
        resized(old, spec)
    except Invalid as error:
        return [f"{found.field}: {found.message()}" for found in error.errors]
    return []


BURSTABLE = asks(amounts("100m", "100Mi"))
GUARANTEED = asks(amounts("100m", "100Mi"), amounts("100m", "100Mi"))
LIMITED = asks(amounts("100m", "100Mi"), amounts("200m", "200Mi"))
MUST_RESTART = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
NO_RESTART = [{"resourceName": "memory", "restartPolicy": "NotRequired"}]
SIDECAR = {"restartPolicy": "Always"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (one(BURSTABLE), one(BURSTABLE)),
        (one(BURSTABLE), one(asks(amounts("200m", "100Mi")))),
        (one(BURSTABLE), one(asks(amounts("50m", "200Mi")))),
        (one(GUARANTEED), one(asks(amounts("2", "1Gi"), amounts("2", "1Gi")))),
        (one(LIMITED), one(asks(amounts("200m", "150Mi"), amounts("200m", "200Mi")))),
        # A limit may come, and one of memory may shrink whatever the policy says.
        (one(BURSTABLE), one(LIMITED)),
        (one(LIMITED), one(asks(amounts("100m", "100Mi"), amounts("200m", "150Mi")))),
        (
            one(LIMITED, resizePolicy=NO_RESTART),
            one(asks(amounts("100m", "50Mi"), amounts("200m", "100Mi")), resizePolicy=NO_RESTART),
        ),
        # A request may come where there was one of the other resource.
        (one(asks(amounts("100m"))), one(BURSTABLE)),
        # What cannot be resized may be stated again, written in another way.
        (
            one(asks(amounts("1", "1Gi", ephemeral_storage="1Gi"))),
            one(asks(amounts("2", "1Gi", ephemeral_storage="1024Mi"))),
        ),
        (init(BURSTABLE, **SIDECAR), init(asks(amounts("200m", "1Mi")), **SIDECAR)),
        (init(BURSTABLE), init(asks(amounts("200m", "1Mi")))),
        (whole(BURSTABLE), whole(asks(amounts("200m", "200Mi")))),
        (whole(GUARANTEED), whole(asks(amounts("1", "2Gi"), amounts("1", "2Gi")))),
        (whole(LIMITED, BURSTABLE), whole(LIMITED, asks(amounts("50m", "50Mi")))),
        # A pod that states nothing as a whole may begin to, where its class stays.
        (one(BURSTABLE), whole(asks(amounts("500m", "500Mi")), BURSTABLE)),
    ],
)
def test_a_pod_that_was_resized_is_as_if_it_had_been_made_so(
    before: Manifest, after: Manifest
) -> None:
    old = stored(before)
    assert problems(old, after) == []
    made = create(pod(after), Known()).manifest
    assert resized(old, after)["spec"] == made["spec"]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (one({}), one(BURSTABLE), [f'spec: Invalid value: "BestEffort": {CLASS}']),
        (
            one(GUARANTEED),
            one(asks(amounts("50m", "100Mi"), amounts("100m", "100Mi"))),
            [f'spec: Invalid value: "Guaranteed": {CLASS}'],
        ),
        (one(LIMITED), one(GUARANTEED), [f'spec: Invalid value: "Burstable": {CLASS}']),
        (
            one(BURSTABLE),
            one(asks(amounts("100m"))),
            [f"spec.containers[0].resources.requests: {REQUESTS}"],
        ),
        (
            one(LIMITED),
            one(asks(amounts("100m", "100Mi"), amounts("200m"))),
            ["spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed"],
        ),
        (
            one(asks(amounts("1", "1Gi", ephemeral_storage="1Gi"))),
            one(asks(amounts("1", "1Gi", ephemeral_storage="2Gi"))),
            [f"spec: Forbidden: {ONLY}"],
        ),
        (
            one(BURSTABLE),
            one(asks(amounts("100m", "100Mi", ephemeral_storage="1Gi"))),
            [f"spec: Forbidden: {ONLY}"],
        ),
        (
            one(BURSTABLE, resizePolicy=NO_RESTART),
            one(BURSTABLE, resizePolicy=MUST_RESTART),
            [f"spec: Forbidden: {ONLY}"],
        ),
        (
            one(LIMITED),
            one(asks(amounts("300m", "100Mi"), amounts("200m", "200Mi"))),
            [
                (
                    'spec.containers[0].resources.requests: Invalid value: "300m":'
                    " must be less than or equal to cpu limit of 200m"
                )
            ],
        ),
        (
            one(BURSTABLE),
            {"containers": [{"name": "d", "image": "i", "resources": BURSTABLE}]},
            [
                (
                    "spec.containers[0].name: Forbidden:"
                    " containers may not be renamed or reordered on resize"
                )
            ],
        ),
        (
            one(BURSTABLE),
            {"containers": [*one(BURSTABLE)["containers"], {"name": "d", "image": "i"}]},
            [f"spec.containers: Forbidden: containers {MOVED}"],
        ),
        (
            init(BURSTABLE),
            {**one(BURSTABLE), "initContainers": []},
            [f"spec.initContainers: Forbidden: initContainers {MOVED}"],
        ),
        (
            init(asks(amounts("1", ephemeral_storage="1Gi")), **SIDECAR),
            init(asks(amounts("1", ephemeral_storage="2Gi")), **SIDECAR),
            [
                (
                    "spec.initContainers[0]: Forbidden: only cpu and memory resources for init or"
                    " sidecar containers are mutable"
                )
            ],
        ),
        (
            whole(BURSTABLE),
            {**one({}), "resources": None},
            [
                f'spec: Invalid value: "Burstable": {CLASS}',
                "spec.resources: Forbidden: pod-level resources cannot be removed",
            ],
        ),
        (
            whole(BURSTABLE),
            whole(asks(amounts("100m"))),
            [
                "spec.resources.requests: Forbidden: pod-level resource requests cannot be removed",
            ],
        ),
        (
            whole(LIMITED),
            whole(asks(amounts("100m", "100Mi"), amounts("200m"))),
            ["spec.resources.limits: Forbidden: pod-level resource limits cannot be removed"],
        ),
    ],
)
def test_what_else_would_change_is_refused(
    before: Manifest, after: Manifest, expected: list[str]
) -> None:
    old = stored(before)
    old["status"]["qosClass"] = _class_of(old)
    assert problems(old, after) == expected


def _class_of(manifest: Manifest) -> str:
    return qos_class(msgspec.convert(manifest, Pod))


@pytest.mark.parametrize(
    ("old", "expected"),
    [
        (
            stored({**one(BURSTABLE), "nodeName": "n"}, **MIRROR),
            ["[]: Forbidden: static pods cannot be resized"],
        ),
        (
            stored({**one(BURSTABLE), "os": {"name": "windows"}}),
            ["[]: Forbidden: windows pods cannot be resized"],
        ),
        (
            stored(
                one(BURSTABLE), {"containerStatuses": [{"name": "c", "state": {"running": {}}}]}
            ),
            ["spec: Forbidden: Pod running on node without support for resize"],
        ),
        (
            stored(one(BURSTABLE), {"nodeAllocatableResourceClaimStatuses": [{"name": "x"}]}),
            ["spec: Forbidden: pods with node allocatable resource claims cannot be resized"],
        ),
    ],
)
def test_some_pods_cannot_be_resized(old: Manifest, expected: list[str]) -> None:
    assert problems(old, one(asks(amounts("200m", "200Mi")))) == expected


def test_an_init_container_that_would_have_to_restart_cannot_be_resized() -> None:
    old = stored(init(BURSTABLE))
    old["spec"]["initContainers"][0]["resizePolicy"] = MUST_RESTART
    said = "non-sidecar init containers with a resize policy of RestartContainer cannot be resized"
    more = init(asks(amounts("1", "1Gi")), resizePolicy=MUST_RESTART)
    assert f"spec.initContainers[0]: Forbidden: {said}" in problems(old, more)


def test_a_resize_changes_nothing_else() -> None:
    old = stored(one(BURSTABLE), labels={"a": "b"})
    new = copy.deepcopy(old)
    new["metadata"] |= {"labels": {"a": "c"}, "annotations": {"x": "y"}, "finalizers": ["e.f/g"]}
    new["spec"]["tolerations"] = [{"key": "k", "operator": "Exists"}]
    new["spec"]["containers"][0] |= {"image": "other", "resources": asks(amounts("2", "1Gi"))}
    new["status"] = {"phase": "Running"}
    merged = merge_update(KINDS["Pod"], old, new, "resize")
    expected = copy.deepcopy(old)
    expected["spec"]["containers"][0]["resources"] = asks(amounts("2", "1Gi"))
    assert admit("Pod", UPDATE, merged, old, "resize", Known(), NOBODY).manifest == expected


# LimitRanges and nodes ------------------------------------------------------------------------


def limits(**item: Any) -> Manifest:
    spec = {"limits": [{"type": "Container", **item}]}
    return {"metadata": {"name": "limits", "namespace": "default"}, "spec": spec}


@pytest.mark.parametrize(
    ("cpu", "memory", "expected"),
    [
        ("600m", "250Mi", "maximum cpu usage per Container is 500m, but limit is 600m"),
        ("250m", "750Mi", "maximum memory usage per Container is 500Mi, but limit is 750Mi"),
        ("10m", "400Mi", "minimum cpu usage per Container is 50m, but request is 10m"),
        ("350m", "350Mi", ""),
    ],
)
def test_a_limit_range_limits_a_resize(cpu: str, memory: str, expected: str) -> None:
    old = stored(one(asks(amounts("300m", "300Mi"), amounts("300m", "300Mi"))))
    known = Known(limit_ranges=[limits(max=amounts("500m", "500Mi"), min=amounts("50m", "50Mi"))])
    after = one(asks(amounts(cpu, memory), amounts(cpu, memory)))
    if not expected:
        assert (
            resized(old, after, known)["spec"]["containers"][0]["resources"]
            == after["containers"][0]["resources"]
        )
        return
    with pytest.raises(Forbidden, match=expected):
        resized(old, after, known)


def test_a_limit_range_fills_in_what_a_resized_container_leaves_out() -> None:
    old = stored(one(asks(amounts("100m"))))
    known = Known(limit_ranges=[limits(default=amounts(memory="1Gi"))])
    new = resized(old, one(asks(amounts("200m"))), known)
    assert new["spec"]["containers"][0]["resources"]["limits"] == {"memory": "1Gi"}
    assert new["metadata"] == old["metadata"]


def test_a_limit_range_leaves_a_pod_alone_that_is_being_deleted() -> None:
    old = stored(
        one(asks(amounts("300m"), amounts("300m"))),
        deletionTimestamp="2026-01-02T03:04:05Z",
        deletionGracePeriodSeconds=30,
    )
    known = Known(limit_ranges=[limits(max=amounts("500m"), default=amounts(memory="1Gi"))])
    after = one(asks(amounts("600m"), amounts("600m")))
    new = resized(old, after, known)
    assert new["spec"]["containers"][0]["resources"] == after["containers"][0]["resources"]


def _node(allocatable: Manifest, **labels: str) -> Manifest:
    named = {key.replace("_", "/"): value for key, value in labels.items()}
    return {"metadata": {"name": "n", "labels": named}, "status": {"allocatable": allocatable}}


@pytest.mark.parametrize(
    ("node", "expected", "cause"),
    [
        (None, 'node "n" not found', None),
        (
            _node({"cpu": "1", "memory": "1Gi"}),
            f"{LACKS}: cpu, requested: 2000, allocatable: 1000",
            "NodeCapacity",
        ),
        (
            _node({"cpu": "1"}),
            (
                f"{LACKS}: cpu, requested: 2000, allocatable: 1000;"
                " memory, requested: 1073741824, allocatable: 0"
            ),
            "NodeCapacity",
        ),
        (
            _node({"cpu": "2", "memory": "1Gi"}, **{"kubernetes.io_os": "windows"}),
            'pod resize is only supported on linux nodes, node "n" is "windows"',
            "UnsupportedPlatform",
        ),
    ],
)
def test_a_node_that_can_never_do_it_refuses_at_once(
    node: Manifest | None, expected: str, cause: str | None
) -> None:
    old = stored({**one(BURSTABLE), "nodeName": "n"})
    known = Known(nodes=[] if node is None else [node])
    with pytest.raises(Forbidden) as refused:
        resized(old, one(asks(amounts("2", "1Gi"))), known)
    assert refused.value.message == f'pods "web" is forbidden: {expected}'
    causes = None if cause is None else [{"reason": cause}]
    assert refused.value.details.get("causes") == causes


@pytest.mark.parametrize(
    ("status", "refused"),
    [
        ({}, False),
        ({"nodeInfo": {"kubeletVersion": "v1.33.1"}}, True),
        ({"nodeInfo": {"kubeletVersion": "v1.37.0"}, "declaredFeatures": ["Other"]}, True),
        ({"nodeInfo": {"kubeletVersion": "v1.37.0"}, "declaredFeatures": [WHOLE]}, False),
    ],
    ids=["no agent", "old agent", "another feature", "declared"],
)
def test_an_agent_resizes_pods_as_a_whole_only_if_it_declares_that(
    status: Manifest, refused: bool
) -> None:
    """Rule: plugin/pkg/admission/nodedeclaredfeatures/admission.go, v1.36."""
    node = _node({"cpu": "8", "memory": "8Gi"})
    node["status"] |= status
    old = stored({**one(asks(amounts("100m"))), "resources": asks(amounts("1")), "nodeName": "n"})
    after = {**one(asks(amounts("100m"))), "resources": asks(amounts("2"))}
    if refused:
        with pytest.raises(Forbidden) as error:
            resized(old, after, Known(nodes=[node]))
        assert error.value.message == (
            f'pods "web" is forbidden: pod update requires features {WHOLE} which are not'
            ' available on node "n"'
        )
        only = {**one(asks(amounts("200m"))), "resources": asks(amounts("1"))}
        resized(old, only, Known(nodes=[node]))
    else:
        assert resized(old, after, Known(nodes=[node]))["spec"]["resources"] == after["resources"]


def test_a_node_is_not_asked_where_nothing_changes() -> None:
    old = stored({**one(BURSTABLE), "nodeName": "n"})
    assert resized(old, one(BURSTABLE)) == old


def test_a_node_of_no_named_system_takes_a_resize() -> None:
    old = stored({**one(BURSTABLE), "nodeName": "n"})
    known = Known(nodes=[_node({"cpu": "2", "memory": "1Gi"})])
    assert resized(old, one(asks(amounts("2", "1Gi"))), known) != old
