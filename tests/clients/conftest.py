"""Client libraries as their users use them: with the kubeconfig that the service writes."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kubelets import Kubelets
from tests.live import Service
from tests.waiting import until

_number = iter(range(10**6))


class Cluster:
    """What a test works with: a namespace, and a node there whose agent runs what is bound to it.

    A pod lands on that node if its nodeSelector is ``selector``.
    """

    def __init__(self, service: Service, namespace: str, node: str) -> None:
        self.service, self.namespace, self.node = service, namespace, node
        self.kubeconfig: Path = service.state / "kubeconfig"
        self.selector = {"own": namespace}

    def pod(self, name: str, **labels: str) -> dict[str, Any]:
        """Return the manifest of a pod for this node."""
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": self.namespace, "labels": labels},
            "spec": self._spec(),
        }

    def deployment(self, name: str, replicas: int) -> dict[str, Any]:
        """Return the manifest of a Deployment whose pods run on this node."""
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": {"labels": {"app": name}}, "spec": self._spec()},
            },
        }

    def _spec(self) -> dict[str, Any]:
        container = {
            "name": "main",
            "image": "example.com/i:1",
            "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
        }
        return {
            "nodeSelector": self.selector,
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
        }


@pytest.fixture(scope="module")
def cluster(live: Service) -> Iterator[Cluster]:
    """A namespace and a node for the tests of one module."""
    name = f"clients-{next(_number)}"
    assert live.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})[0] == 201
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    until(lambda: live.request("GET", account)[0] == 200, what="the namespace's account")
    with Kubelets(live, name, [f"{name}-node"], name):
        yield Cluster(live, name, f"{name}-node")
    live.request("DELETE", f"/api/v1/namespaces/{name}")


class Background:
    """Runs a function beside the test; what it raises is raised when the test joins it."""

    def __init__(self, work: Any) -> None:
        self._work = work
        self._raised: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001  the test's own thread raises it
            self._raised = error

    def join(self, seconds: float = 30) -> None:
        """Wait for its end."""
        self._thread.join(seconds)
        assert not self._thread.is_alive(), "still at work"
        if self._raised is not None:
            raise self._raised
