"""No kill between reserve and bind leaves a device or volume held twice, or held by nobody."""

from typing import Any

import pytest

from tests.faults.claims import KINDS, claim_violations
from tests.faults.test_nothing_lost import kill_and_wait_until_back
from tests.live import Service, node, pod, started
from tests.waiting import until

PODS = "/api/v1/namespaces/default/pods"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
DEVICES = "/apis/resource.k8s.io/v1"
STORAGE = "/apis/storage.k8s.io/v1"
PATHS = {
    "Pod": "/api/v1/pods",
    "ResourceClaim": f"{DEVICES}/resourceclaims",
    "ResourceSlice": f"{DEVICES}/resourceslices",
    "PersistentVolume": "/api/v1/persistentvolumes",
    "PersistentVolumeClaim": "/api/v1/persistentvolumeclaims",
    "CSINode": f"{STORAGE}/csinodes",
    "StorageClass": f"{STORAGE}/storageclasses",
}
NODES, GPUS, NUMBER = 4, 4, 14


def named(kind: str, name: str, **body: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": name}, **body}


def post(service: Service, path: str, body: dict[str, Any]) -> None:
    status, answer = service.request("POST", path, body)
    assert status == 201, answer


def prepare(service: Service) -> None:
    for number in range(NODES):
        name = f"n{number}"
        post(service, "/api/v1/nodes", node(name, pods="100"))
        driver = {"name": "hollow.stowage.dev", "nodeID": name, "allocatable": {"count": 4}}
        post(service, f"{STORAGE}/csinodes", named("CSINode", name, spec={"drivers": [driver]}))
        spec = {
            "driver": "gpu.example.com",
            "nodeName": name,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"gpu-{gpu}"} for gpu in range(GPUS)],
        }
        post(service, f"{DEVICES}/resourceslices", named("ResourceSlice", name, spec=spec))
    post(service, f"{DEVICES}/deviceclasses", named("DeviceClass", "gpu", spec={}))
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}
    spec = {"spec": {"devices": {"requests": [request]}}}
    template = named("ResourceClaimTemplate", "gpu", spec=spec)
    post(service, f"{DEVICES}/namespaces/default/resourceclaimtemplates", template)
    hollow = {
        "provisioner": "stowage.dev/hollow",
        "volumeBindingMode": "WaitForFirstConsumer",
        "parameters": {"delay": "3s"},
    }
    post(service, f"{STORAGE}/storageclasses", named("StorageClass", "hollow", **hollow))


def submit(service: Service, number: int) -> None:
    """Post a pod that claims a device, and every other one a volume as well."""
    made = pod(f"p{number}", cpu="1m")
    made["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    if number % 2:
        asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        asked["storageClassName"] = "hollow"
        post(service, CLAIMS, named("PersistentVolumeClaim", f"c{number}", spec=asked))
        source = {"claimName": f"c{number}"}
        made["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": source}]
    post(service, PODS, made)


def lists(service: Service) -> dict[str, list[Any]]:
    return {kind: service.request("GET", PATHS[kind])[1]["items"] for kind in KINDS}


@pytest.mark.db
@pytest.mark.slow
@pytest.mark.real_clock
@pytest.mark.timeout(600)
@pytest.mark.long
@pytest.mark.parametrize("part", ["scheduler", "worker", "timers", "postgres", "redis"])
def test_what_is_held_when_a_part_is_killed_is_held_once_and_by_somebody(part: str) -> None:
    with started() as service:
        prepare(service)
        for number in range(NUMBER):
            submit(service, number)

        def is_between() -> bool:
            with service.database() as connection:
                (found,) = connection.execute("SELECT count(*) FROM reservation").fetchone() or (0,)
            return bool(found)

        until(is_between, seconds=60, what="a pod between reserve and bind")
        kill_and_wait_until_back(service, part)

        def bound() -> bool:
            found = service.request("GET", PATHS["Pod"])[1]["items"]
            return all(one["spec"].get("nodeName") for one in found)

        until(bound, seconds=180, what="all pods to be bound")
        assert claim_violations(lists(service)) == []
        for number in range(0, NUMBER, 2):
            service.request("DELETE", f"{PODS}/p{number}?gracePeriodSeconds=0")

        def given_back() -> bool:
            found = service.request("GET", PATHS["ResourceClaim"])[1]["items"]
            return len(found) == NUMBER // 2

        until(given_back, seconds=60, what="claims of deleted pods to go")
        assert claim_violations(lists(service)) == []


# --- what the checker finds ----------------------------------------------------------------------


def item(name: str, namespace: str = "default", **body: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}"}, **body}


def claim(name: str, *given: dict[str, Any], users: tuple[str, ...] = ("p",)) -> dict[str, Any]:
    results = [{"driver": "d", "pool": "a", "request": "r", **one} for one in given]
    reserved = [{"resource": "pods", "name": one, "uid": f"uid-{one}"} for one in users]
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": reserved}
    return item(name, status=status)


def on_node(name: str, **spec: Any) -> dict[str, Any]:
    return item(name, spec={"nodeName": "n", **spec}, status={"phase": "Running"})


POOL = {"name": "a", "generation": 1, "resourceSliceCount": 1}


def sliced(*devices: dict[str, Any], **more: Any) -> dict[str, Any]:
    return item("s", "", spec={"driver": "d", "pool": POOL, "devices": [*devices], **more})


def found(**objects: list[dict[str, Any]]) -> list[str]:
    return claim_violations({kind: objects.get(kind, []) for kind in KINDS})


P = on_node("p")
SHARED = {"device": "0", "shareID": "x", "consumedCapacity": {"memory": "6Gi"}}


def counter(value: str) -> dict[str, Any]:
    return {"counters": {"slots": {"value": value}}}


@pytest.mark.parametrize(
    ("objects", "text"),
    [
        (
            {
                "Pod": [P],
                "ResourceClaim": [claim("a", {"device": "0"}), claim("b", {"device": "0"})],
            },
            "device d/a/0 is held by default/a, default/b",
        ),
        (
            {"Pod": [P], "ResourceClaim": [claim("a", SHARED), claim("b", SHARED)]},
            "share d/a/0/x is held 2 times",
        ),
        (
            {
                "Pod": [P],
                "ResourceSlice": [sliced({"name": "0", "capacity": {"memory": {"value": "10Gi"}}})],
                "ResourceClaim": [claim("a", SHARED), claim("b", {**SHARED, "shareID": "y"})],
            },
            "of memory of d/a/0 are taken",
        ),
        (
            {
                "Pod": [P],
                "ResourceSlice": [
                    sliced(
                        *(
                            {"name": n, "consumesCounters": [{"counterSet": "c", **counter("2")}]}
                            for n in "01"
                        ),
                        sharedCounters=[{"name": "c", **counter("3")}],
                    )
                ],
                "ResourceClaim": [claim("a", {"device": "0"}, {"device": "1"})],
            },
            "4 of counter d/a/c/slots are taken, there are 3",
        ),
        (
            {
                "StorageClass": [item("s", "", parameters={"capacity": "3Gi"})],
                "PersistentVolume": [
                    item(n, "", spec={"storageClassName": "s", "capacity": {"storage": "2Gi"}})
                    for n in "ab"
                ],
            },
            "volumes of s in all: 1073741824 beyond the capacity",
        ),
        ({"ResourceClaim": [claim("a", {"device": "0"}, users=())]}, "holds devices for nobody"),
        ({"ResourceClaim": [claim("a", {"device": "0"})]}, "is held for p, which is not on a node"),
        (
            {"Pod": [on_node("p", resourceClaims=[{"name": "g", "resourceClaimName": "a"}])]},
            "default/p is on a node without its claim a",
        ),
        (
            {
                "PersistentVolume": [item("v", "", spec={"claimRef": {"uid": "uid-a"}})],
                "PersistentVolumeClaim": [
                    item(name, spec={"volumeName": "v"}, status={"phase": "Bound"}) for name in "ab"
                ],
            },
            "volume v is bound to default/a, default/b",
        ),
        (
            {"PersistentVolume": [item("v", "", spec={"claimRef": {"uid": "u", "name": "a"}})]},
            "volume v is held for a, which does not have it",
        ),
        (
            {
                "PersistentVolumeClaim": [item("a", spec={}, status={"phase": "Pending"})],
                "Pod": [
                    on_node("p", volumes=[{"persistentVolumeClaim": {"claimName": "a"}}]),
                ],
            },
            "its claim default/a is not bound",
        ),
        (
            {
                "CSINode": [
                    item("n", "", spec={"drivers": [{"name": "d", "allocatable": {"count": 1}}]})
                ],
                "PersistentVolume": [
                    item(n, "", spec={"claimRef": {"uid": f"uid-{n}"}, "csi": {"driver": "d"}})
                    for n in "ab"
                ],
                "PersistentVolumeClaim": [
                    item(n, spec={"volumeName": n}, status={"phase": "Bound"}) for n in "ab"
                ],
                "Pod": [
                    on_node(
                        "p", volumes=[{"persistentVolumeClaim": {"claimName": n}} for n in "ab"]
                    )
                ],
            },
            "2 volumes of d on n, limit 1",
        ),
    ],
)
def test_the_checker_finds_what_was_planted(objects: dict[str, list[Any]], text: str) -> None:
    assert any(text in one for one in found(**objects)), found(**objects)


def test_what_is_held_as_it_should_be_is_no_violation() -> None:
    mine = on_node("p", resourceClaims=[{"name": "g", "resourceClaimName": "a"}])
    assert found(Pod=[mine], ResourceClaim=[claim("a", {"device": "0"})]) == []
