"""Public examples of claims, in the form users have them, on nodes with the drivers' slices.

They follow the demos of NVIDIA's driver, gpu-test1 to gpu-test6, and of Kubernetes' example driver.
The slices are those that hollow nodes publish from ``examples/devices``.
"""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from clusterstate.actions import objects
from clusterstate.actions.cluster import bootstrap
from clusterstate.actions.pods.create import create_pods
from clusterstate.local.hollow import devices
from clusterstate.queries.objects.lists import list_page
from scheduling.controllers.pods import resource_claims
from tests.controllers.support import NOW, make_node, schedule

pytestmark = pytest.mark.django_db
FILES = Path(__file__).parents[2] / "examples" / "devices"
CLASSES = """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.nvidia.com}
spec:
  selectors:
  - cel:
      expression: "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'"
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: mig.nvidia.com}
spec:
  selectors:
  - cel:
      expression: "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'mig'"
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: nic.example.com}
spec:
  selectors:
  - cel: {expression: "device.driver == 'nic.example.com'"}
"""  # noqa: E501
SINGLE = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: single-gpu}
spec:
  spec:
    devices:
      requests:
      - name: gpu
        exactly: {deviceClassName: gpu.nvidia.com}
---
"""
GPU_TEST = {
    "gpu-test1": SINGLE
    + """
apiVersion: v1
kind: Pod
metadata: {name: pod1, labels: {app: pod}}
spec:
  containers:
  - name: ctr
    image: ubuntu:22.04
    command: ["bash", "-c"]
    args: ["nvidia-smi -L; trap 'exit 0' TERM; sleep 9999 & wait"]
    resources: {claims: [{name: gpu}]}
  resourceClaims:
  - {name: gpu, resourceClaimTemplateName: single-gpu}
  tolerations:
  - {key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}
---
apiVersion: v1
kind: Pod
metadata: {name: pod2, labels: {app: pod}}
spec:
  containers:
  - name: ctr
    image: ubuntu:22.04
    resources: {claims: [{name: gpu}]}
  resourceClaims:
  - {name: gpu, resourceClaimTemplateName: single-gpu}
""",
    "gpu-test2": SINGLE
    + """
apiVersion: v1
kind: Pod
metadata: {name: pod}
spec:
  containers:
  - {name: ctr0, image: "ubuntu:22.04", resources: {claims: [{name: shared-gpu}]}}
  - {name: ctr1, image: "ubuntu:22.04", resources: {claims: [{name: shared-gpu}]}}
  resourceClaims:
  - {name: shared-gpu, resourceClaimTemplateName: single-gpu}
""",
    "gpu-test3": """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: single-gpu}
spec:
  devices:
    requests:
    - name: gpu
      exactly: {deviceClassName: gpu.nvidia.com}
---
apiVersion: v1
kind: Pod
metadata: {name: pod1}
spec:
  containers:
  - {name: ctr, image: "ubuntu:22.04", resources: {claims: [{name: shared-gpu}]}}
  resourceClaims:
  - {name: shared-gpu, resourceClaimName: single-gpu}
---
apiVersion: v1
kind: Pod
metadata: {name: pod2}
spec:
  containers:
  - {name: ctr, image: "ubuntu:22.04", resources: {claims: [{name: shared-gpu}]}}
  resourceClaims:
  - {name: shared-gpu, resourceClaimName: single-gpu}
""",
    "gpu-test4": """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: mig-devices}
spec:
  spec:
    devices:
      requests:
      - name: mig-1g-10gb
        exactly:
          deviceClassName: mig.nvidia.com
          selectors:
          - cel: {expression: "device.attributes['gpu.nvidia.com'].profile == '1g.10gb'"}
      - name: mig-3g-40gb
        exactly:
          deviceClassName: mig.nvidia.com
          selectors:
          - cel: {expression: "device.attributes['gpu.nvidia.com'].profile == '3g.40gb'"}
      constraints:
      - requests: []
        matchAttribute: gpu.nvidia.com/parentUUID
---
apiVersion: v1
kind: Pod
metadata: {name: pod1}
spec:
  containers:
  - {name: a, image: "ubuntu:22.04", resources: {claims: [{name: mig, request: mig-1g-10gb}]}}
  - {name: b, image: "ubuntu:22.04", resources: {claims: [{name: mig, request: mig-3g-40gb}]}}
  resourceClaims:
  - {name: mig, resourceClaimTemplateName: mig-devices}
""",
    "gpu-test5": """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: multiple-gpus}
spec:
  spec:
    devices:
      requests:
      - name: ts-gpu
        exactly: {deviceClassName: gpu.nvidia.com}
      - name: mps-gpu
        exactly: {deviceClassName: gpu.nvidia.com}
      config:
      - requests: [ts-gpu]
        opaque:
          driver: gpu.nvidia.com
          parameters:
            apiVersion: resource.nvidia.com/v1beta1
            kind: GpuConfig
            sharing: {strategy: TimeSlicing, timeSlicingConfig: {interval: Long}}
      - requests: [mps-gpu]
        opaque:
          driver: gpu.nvidia.com
          parameters:
            apiVersion: resource.nvidia.com/v1beta1
            kind: GpuConfig
            sharing: {strategy: MPS, mpsConfig: {defaultActiveThreadPercentage: 50}}
---
apiVersion: v1
kind: Pod
metadata: {name: pod}
spec:
  containers:
  - {name: ts, image: cuda-sample, resources: {claims: [{name: gpus, request: ts-gpu}]}}
  - {name: mps, image: cuda-sample, resources: {claims: [{name: gpus, request: mps-gpu}]}}
  resourceClaims:
  - {name: gpus, resourceClaimTemplateName: multiple-gpus}
""",
    "gpu-test6": """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: selected-gpus}
spec:
  spec:
    devices:
      requests:
      - name: gpu
        exactly:
          deviceClassName: gpu.nvidia.com
          selectors:
          - cel:
              expression: >-
                device.attributes['gpu.nvidia.com'].productName.lowerAscii().matches('^.*a100.*$')
                && device.attributes['gpu.nvidia.com'].index >= 4
          - cel:
              expression: >-
                device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('40Gi')) >= 0
---
apiVersion: v1
kind: Pod
metadata: {name: pod}
spec:
  containers:
  - {name: ctr, image: "ubuntu:22.04", resources: {claims: [{name: gpu}]}}
  resourceClaims:
  - {name: gpu, resourceClaimTemplateName: selected-gpus}
""",
}


@pytest.fixture(autouse=True)
def _cluster(db: None) -> None:
    bootstrap.add_missing(now=NOW)
    for name in ("n0", "n1"):
        make_node(name)
    apply(CLASSES)


def publish(file: str) -> None:
    for driver in devices.read((FILES / file).read_text()):
        for number, node in enumerate(("n0", "n1")):
            for one in devices.slices_of(driver, node) if driver.is_on(number) else ():
                objects.create("ResourceSlice", "", one, now=NOW)


def apply(text: str) -> None:
    for one in yaml.safe_load_all(text):
        if one["kind"] == "Pod":
            one["metadata"]["namespace"] = "default"
            create_pods([one], now=NOW)
        else:
            namespace = "" if one["kind"] == "DeviceClass" else "default"
            objects.create(one["kind"], namespace, one, now=NOW)


def stored(kind: str) -> dict[str, Any]:
    found = [msgspec.json.decode(one) for one in list_page(kind).items]
    return {one["metadata"]["name"]: one for one in found}


def settle() -> dict[str, list[str]]:
    """Return the devices that each pod's claims got, after all are decided; empty: it waits."""
    resource_claims.follow(NOW)
    schedule(NOW)
    claims = stored("ResourceClaim")
    found: dict[str, list[str]] = {}
    for name, pod in stored("Pod").items():
        told = pod.get("status", {}).get("resourceClaimStatuses") or ()
        names = [one["resourceClaimName"] for one in told]
        names += [
            one["resourceClaimName"] for one in pod["spec"]["resourceClaims"]
            if one.get("resourceClaimName")
        ]  # fmt: skip
        results = [
            result
            for claim in names
            for result in (claims[claim].get("status", {}).get("allocation") or {"devices": {}})[
                "devices"
            ].get("results", ())
        ]
        found[name] = [one["device"] for one in results] if pod["spec"].get("nodeName") else []
    return found


def test_each_pod_of_gpu_test1_gets_a_gpu_of_its_own():
    publish("gpus.yaml")
    apply(GPU_TEST["gpu-test1"])
    found = settle()
    assert all(len(given) == 1 for given in found.values())
    held = [
        (result["pool"], result["device"])
        for claim in stored("ResourceClaim").values()
        for result in claim["status"]["allocation"]["devices"]["results"]
    ]
    assert len(set(held)) == 2


@pytest.mark.parametrize(
    ("example", "given"),
    [
        ("gpu-test2", {"pod": ["gpu-0"]}),
        ("gpu-test3", {"pod1": ["gpu-0"], "pod2": ["gpu-0"]}),
        ("gpu-test5", {"pod": ["gpu-0", "gpu-1"]}),
        ("gpu-test6", {"pod": ["gpu-4"]}),
    ],
)
def test_an_example_gets_what_its_driver_s_readme_says(example: str, given: dict[str, list[str]]):
    publish("gpus.yaml")
    apply(GPU_TEST[example])
    assert settle() == given


def test_parts_of_one_gpu_come_together_and_leave_no_room_for_the_whole():
    publish("mig.yaml")
    apply(GPU_TEST["gpu-test4"])
    found = settle()["pod1"]
    assert len(found) == 2
    assert len({name.split("-mig-")[0] for name in found}) == 1
    (node,) = {pod["spec"]["nodeName"] for pod in stored("Pod").values()}
    exactly = {"deviceClassName": "gpu.nvidia.com"}
    for number in range(4):
        spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
        manifest = {"metadata": {"name": f"whole-{number}"}, "spec": spec}
        objects.create("ResourceClaim", "default", manifest, now=NOW)
        entry = {"name": "gpu", "resourceClaimName": f"whole-{number}"}
        apply(
            yaml.safe_dump(
                {
                    "kind": "Pod", "apiVersion": "v1",
                    "metadata": {"name": f"whole-{number}"},
                    "spec": {
                        "containers": [{"name": "c", "image": "i"}], "resourceClaims": [entry],
                    },
                }
            )
        )  # fmt: skip
    whole = {name: given for name, given in settle().items() if name.startswith("whole")}
    assert sorted(map(len, whole.values())) == [0, 1, 1, 1]
    here = [
        given[0]
        for name, given in whole.items()
        if given and stored("Pod")[name]["spec"]["nodeName"] == node
    ]
    assert here == [{"gpu-0": "gpu-1", "gpu-1": "gpu-0"}[found[0].split("-mig-")[0]]]


@pytest.mark.parametrize("example", ["gpu-test1", "gpu-test6"])
def test_without_the_driver_s_slices_pods_wait_in_kubernetes_words(example: str):
    apply(GPU_TEST[example])
    assert not any(settle().values())
    for pod in stored("Pod").values():
        (told,) = [one for one in pod["status"]["conditions"] if one["type"] == "PodScheduled"]
        assert told["message"].startswith("0/2 nodes are available: 2 cannot allocate all claims.")


def test_pods_share_a_network_card_until_its_bandwidth_is_given_out():
    publish("gpus.yaml")
    for number in range(3):
        exactly = {
            "deviceClassName": "nic.example.com",
            "capacity": {"requests": {"bandwidth": "80G"}},
            "selectors": [
                {"cel": {"expression": "device.attributes['nic.example.com'].rdma == true"}}
            ],
        }
        spec = {"devices": {"requests": [{"name": "nic", "exactly": exactly}]}}
        manifest = {"metadata": {"name": f"nic-{number}"}, "spec": spec}
        objects.create("ResourceClaim", "default", manifest, now=NOW)
        entry = {"name": "nic", "resourceClaimName": f"nic-{number}"}
        meta = {"name": f"p{number}", "namespace": "default"}
        spec = {"containers": [{"name": "c", "image": "i"}], "resourceClaims": [entry]}
        create_pods([{"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}], now=NOW)
    assert sorted(map(len, settle().values())) == [0, 1, 1]


# --- the demos of Kubernetes' example driver ------------------------------------------------------


def example_driver() -> None:
    """Publish the slices of one node, and the driver's classes."""
    for driver in devices.read((FILES / "example-driver.yaml").read_text()):
        for one in devices.slices_of(driver, "n0"):
            objects.create("ResourceSlice", "", one, now=NOW)
        name = driver.driver
        spec: dict[str, Any] = {
            "selectors": [{"cel": {"expression": f"device.driver == '{name}'"}}]
        }
        if name == "gpu.example.com":
            spec["extendedResourceName"] = "example.com/gpu"
        objects.create("DeviceClass", "", {"metadata": {"name": name}, "spec": spec}, now=NOW)


def claiming(name: str, *requests: dict[str, Any], **spec: Any) -> None:
    """Make a template and a pod with a claim of it."""
    made = {"spec": {"devices": {"requests": [*requests]}}}
    meta = {"name": name, "namespace": "default"}
    template = {"metadata": {"name": name}, "spec": made}
    objects.create("ResourceClaimTemplate", "default", template, now=NOW)
    container = {"name": "ctr0", "image": "ubuntu:22.04", "resources": {"claims": [{"name": "x"}]}}
    entries = [{"name": "x", "resourceClaimTemplateName": name}]
    spec = {"containers": [container], "resourceClaims": entries} | spec
    create_pods([{"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}], now=NOW)


def gpu(**exactly: Any) -> dict[str, Any]:
    return {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com", **exactly}}


def alternative(name: str, expression: str = "") -> dict[str, Any]:
    selectors = [{"cel": {"expression": expression}}] if expression else []
    return {"name": name, "deviceClassName": "gpu.example.com", "selectors": selectors}


def results(pod: str) -> list[dict[str, Any]]:
    """Return what the claims of a pod hold."""
    return [
        result
        for one in stored("ResourceClaim").values()
        if any(user["name"] == pod for user in one.get("status", {}).get("reservedFor", ()))
        for result in one["status"]["allocation"]["devices"]["results"]
    ]


def test_the_first_alternative_that_some_device_suits_is_taken():
    example_driver()
    model, memory = (
        "device.attributes['gpu.example.com'].model == '{}'",
        "device.capacity['gpu.example.com'].memory.compareTo(quantity('1Ti')) >= 0",
    )
    older = alternative("older")
    new = [alternative("newer", model.format("NEWER")), alternative("huge", memory), older]
    claiming("falls-back", {"name": "gpu", "firstAvailable": new})
    latest = alternative("latest", model.format("LATEST-GPU-MODEL"))
    claiming("prefers", {"name": "gpu", "firstAvailable": [latest, older]})
    assert all(map(len, settle().values()))
    assert [one["request"] for one in results("falls-back")] == ["gpu/older"]
    assert [one["request"] for one in results("prefers")] == ["gpu/latest"]


def test_admin_access_sees_all_devices_while_others_hold_them():
    example_driver()
    claiming("holds", gpu(count=2))

    def labelled(old: dict[str, Any]) -> dict[str, Any]:
        labels = old["metadata"].get("labels", {})
        labels = {**labels, "resource.kubernetes.io/admin-access": "true"}
        return {**old, "metadata": {**old["metadata"], "labels": labels}}

    objects.update("Namespace", "", "default", labelled, now=NOW)
    claiming("watches", gpu(allocationMode="All", adminAccess=True))
    assert settle() == {"holds": ["gpu-0", "gpu-1"], "watches": ["gpu-0", "gpu-1"]}


def test_a_card_is_shared_by_its_bandwidth():
    example_driver()
    for name, ingress in (("a", "10G"), ("b", "5G"), ("c", "90G")):
        capacity = {"requests": {"ingressBandwidth": ingress, "egressBandwidth": "5G"}}
        exactly = {"deviceClassName": "net.example.com", "capacity": capacity}
        claiming(name, {"name": "nic", "exactly": exactly})
    assert settle() == {"a": ["nic-0"], "b": ["nic-0"], "c": []}


def test_extended_resources_are_served_under_both_names():
    example_driver()
    for name in ("deviceclass.resource.kubernetes.io/gpu.example.com", "example.com/gpu"):
        meta = {"name": name.partition("/")[0], "namespace": "default"}
        container = {"name": "c", "image": "i", "resources": {"limits": {name: "1"}}}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta}
        create_pods([{**pod, "spec": {"containers": [container]}}], now=NOW)
    schedule(NOW)
    given = [result["device"] for name in stored("Pod") for result in results(name)]
    assert sorted(given) == ["gpu-0", "gpu-1"]


def test_a_tainted_device_is_for_those_that_tolerate_it():
    example_driver()
    taint = {"key": "example.com/unhealthy", "effect": "NoSchedule"}
    spec = {"deviceSelector": {"driver": "gpu.example.com", "device": "gpu-0"}, "taint": taint}
    objects.create("DeviceTaintRule", "", {"metadata": {"name": "sick"}, "spec": spec}, now=NOW)
    claiming("tolerates", gpu(tolerations=[{"key": taint["key"], "operator": "Exists"}]))
    claiming("healthy", gpu())
    claiming("waits", gpu())
    assert settle() == {"tolerates": ["gpu-0"], "healthy": ["gpu-1"], "waits": []}


# --- the file of devices --------------------------------------------------------------------------


def test_entries_are_repeated_with_their_numbers_and_counters_have_their_own_slice():
    (driver,) = devices.read((FILES / "mig.yaml").read_text())
    counters, rest = devices.slices_of(driver, "n1")
    assert [one["name"] for one in counters["spec"]["sharedCounters"]] == [
        "gpu-0-counters", "gpu-1-counters",
    ]  # fmt: skip
    assert rest["spec"]["pool"] == {"name": "n1", "generation": 1, "resourceSliceCount": 2}
    assert rest["spec"]["devices"][1]["attributes"]["index"] == {"int": 1}
    assert rest["spec"]["devices"][1]["attributes"]["uuid"] == {"string": "GPU-n1-1"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("- driver: d\n  devices: [{name: a, count: 0}]", "devices[0].count"),
        ("- driver: d\n  devices: 3", "devices"),
        ("- driver: d\n  devices: []\n  color: red", "color"),
        ("- driver: d\n  devices: []\n  nodes: -1", "[0].nodes"),
        ("- driver: d\n  devices: []\n  nodes: 2\n  allNodes: true", "[0].nodes"),
        ("- driver: d\n  devices: []\n  pool: p", "[0].pool"),
        ("- [", "while parsing"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_by_its_field(text: str, told: str):
    with pytest.raises(devices.DevicesError) as refused:
        devices.read(text)
    assert told in str(refused.value)
