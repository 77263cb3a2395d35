"""Pods that wait in the running service: on Permit, on PreBind, and for their RuntimeClass.

The plugins are those of another package.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import faults
from tests.faults.test_nothing_lost import kill_and_wait_until_back
from tests.kubectl.conftest import Kubectl, find_kubectl
from tests.live import Service, node, pod, started
from tests.plugins.packages import OUTSIDE, install
from tests.waiting import until

pytestmark = [*faults.MARKS, pytest.mark.long]
PODS = "/api/v1/namespaces/default/pods"
GROUP = "/apis/stowage.dev/v1"
WAITING = f"{GROUP}/waitingpods"


def profile(name: str, seconds: float, files: Path) -> dict[str, Any]:
    """Return a profile whose pods wait for their gang, and whose binding is written down."""
    journal = {"file": str(files / "journal"), "hold": str(files / "hold")}
    return {
        "schedulerName": name,
        "plugins": {"multiPoint": {"enabled": [{"name": "Gang"}, {"name": "Journal"}]}},
        "pluginConfig": [
            {"name": "Gang", "args": {"size": 2, "timeoutSeconds": seconds}},
            {"name": "Journal", "args": journal},
        ],
    }


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the plugins' files."""
    return tmp_path_factory.mktemp("files")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, files: Path) -> Iterator[Service]:
    packages = tmp_path_factory.mktemp("packages")
    install(OUTSIDE, packages)
    settings = {"PYTHONPATH": str(packages), "STOWAGE_ADMISSION": '{"waitForRuntimeClass": true}'}
    with started(**settings) as service:
        document = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [
                {"schedulerName": "default-scheduler"},
                profile("patient", 600, files),
                profile("hurried", 1, files),
            ],
        }
        answer = service.request("PUT", f"{GROUP}/schedulerconfiguration", document)
        assert answer[0] == 200, answer
        assert service.request("POST", "/api/v1/nodes", node("only", cpu="1"))[0] == 201
        yield service


def create(service: Service, name: str, scheduler: str, **labels: str) -> None:
    manifest = pod(name, cpu="800m", schedulerName=scheduler)
    manifest["metadata"]["labels"] = {f"example.com/{key}": of for key, of in labels.items()}
    assert service.request("POST", PODS, manifest)[0] == 201


def waiting(service: Service) -> list[str]:
    return [item["metadata"]["name"] for item in service.request("GET", WAITING)[1]["items"]]


def scheduled_condition(service: Service, name: str) -> dict[str, Any]:
    """Return the pod's PodScheduled condition once it has one."""

    def look() -> dict[str, Any] | None:
        path = f"{PODS}/{name}?waitFor=PodScheduled&timeoutSeconds=20"
        conditions = service.request("GET", path)[1]["status"].get("conditions", [])
        return next((one for one in conditions if one["type"] == "PodScheduled"), None)

    return until(look, seconds=60, what=f"{name} to be decided")


def test_waiting_pods_survive_the_kill_of_scheduler_and_worker(
    service: Service, files: Path, tmp_path: Path
) -> None:
    """R163-R167: what is set aside stays so, and every step is done."""
    journal = files / "journal"

    def count(point: str) -> int:
        return sum(line.startswith(f"{point} default/waits") for line in _lines(journal))

    hold = files / "hold"
    hold.touch()
    create(service, "waits", "patient", gang="red")
    until(lambda: waiting(service) == ["waits"], seconds=120, what="the pod to wait")
    if binary := find_kubectl():
        kubectl = Kubectl(binary, service, tmp_path, "default")
        kubectl.says(r"^default +waits +only +Gang +\d+m", "get", "waitingpods", "-A")
    kill_and_wait_until_back(service, "scheduler")
    until(lambda: count("reserve") >= 2, seconds=120, what="the new scheduler to take it over")
    create(service, "needs-its-room", "default-scheduler")
    assert "Insufficient cpu" in scheduled_condition(service, "needs-its-room")["message"]
    assert waiting(service) == ["waits"]

    allow = {"plugin": "Gang", "decision": "Allow"}
    path = f"{GROUP}/namespaces/default/pods/waits/permit"
    assert service.request("POST", path, allow)[0] == 201
    until(lambda: count("pre_bind") > 0, seconds=120, what="PreBind to begin")
    assert waiting(service) == []
    before = count("pre_bind")
    kill_and_wait_until_back(service, "worker")
    until(lambda: count("pre_bind") > before, seconds=120, what="PreBind to begin again")
    assert not service.request("GET", f"{PODS}/waits")[1]["spec"].get("nodeName")
    hold.unlink()
    assert scheduled_condition(service, "waits")["status"] == "True"
    until(lambda: count("post_bind") == 1, seconds=120, what="PostBind")
    assert count("unreserve") == 0

    def nothing_left() -> bool:
        with service.database() as connection:
            return connection.execute("SELECT count(*) FROM reservation").fetchone() == (0,)

    until(nothing_left, seconds=120, what="the reservation to end")
    assert service.request("DELETE", f"{PODS}/waits?gracePeriodSeconds=0")[0] == 200
    assert service.request("DELETE", f"{PODS}/needs-its-room?gracePeriodSeconds=0")[0] == 200


def test_a_deadline_passes_in_the_running_service(service: Service, files: Path) -> None:
    create(service, "hurried", "hurried", gang="blue")
    message = scheduled_condition(service, "hurried")["message"]
    assert "rejected due to timeout after waiting 1s at plugin Gang" in message
    assert "unreserve default/hurried only" in _lines(files / "journal")


def test_a_pod_goes_on_when_its_runtime_class_appears(service: Service) -> None:
    """R54, C8."""
    manifest = pod("sandboxed", cpu="10m", runtimeClassName="kata")
    assert service.request("POST", PODS, manifest)[0] == 201
    assert scheduled_condition(service, "sandboxed")["reason"] == "SchedulingGated"
    kata = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "kata"},
        "handler": "kata",
        "overhead": {"podFixed": {"cpu": "20m"}},
    }
    assert service.request("POST", "/apis/node.k8s.io/v1/runtimeclasses", kata)[0] == 201
    until(
        lambda: service.request("GET", f"{PODS}/sandboxed")[1]["spec"].get("nodeName") == "only",
        seconds=120,
        what="the pod to be placed",
    )
    assert service.request("GET", f"{PODS}/sandboxed")[1]["spec"]["overhead"] == {"cpu": "20m"}


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []
