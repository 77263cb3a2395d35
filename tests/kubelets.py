"""Agents of nodes over HTTP: they renew leases, run what is bound to their nodes and end it."""

import threading
from collections.abc import Sequence
from typing import Any

from clusterstate.objects.rules import resizing
from tests.live import Service

MERGE = "application/merge-patch+json"
_RENEWED = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


class Kubelets(threading.Thread):
    """Plays the agents of some nodes for the pods of one namespace, a few times a second.

    A container whose image begins with ``broken`` never gets ready; a pod that is not to be
    restarted succeeds at once; a resize is carried out whatever room there is. Used as a context
    manager: the nodes are there inside.
    """

    def __init__(self, service: Service, namespace: str, nodes: Sequence[str], label: str) -> None:
        super().__init__(name="kubelets", daemon=True)
        self._service, self._namespace, self.nodes = service, namespace, list(nodes)
        self._label = label
        self._ended = threading.Event()

    def __enter__(self) -> "Kubelets":
        for name in self.nodes:
            self.add(name)
        self.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._ended.set()
        self.join()
        for name in self.nodes:
            self._service.request("DELETE", f"/api/v1/nodes/{name}")
            self._service.request("DELETE", f"{_RENEWED}/{name}")

    def add(self, name: str) -> None:
        """Register a node that is ready, and its lease."""
        offer = {"cpu": "4", "memory": "8Gi", "pods": "20"}
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": {"kubernetes.io/hostname": name, "own": self._label},
            },
            "status": {
                "capacity": offer,
                "allocatable": offer,
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            },
        }
        status, answer = self._service.request("POST", "/api/v1/nodes", node)
        assert status == 201, answer
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name, "namespace": "kube-node-lease"},
            # The lease of a test ends with the test; nobody has to be told apart from the dead.
            "spec": {"holderIdentity": name, "leaseDurationSeconds": 3600},
        }
        status, answer = self._service.request("POST", _RENEWED, lease)
        assert status == 201, answer
        if name not in self.nodes:
            self.nodes.append(name)

    def run(self) -> None:
        path = f"/api/v1/namespaces/{self._namespace}/pods"
        while not self._ended.wait(0.1):
            status, answer = self._service.request("GET", path)
            for pod in answer["items"] if status == 200 else ():
                if pod["spec"].get("nodeName") in self.nodes:
                    self._attend(f"{path}/{pod['metadata']['name']}", pod)

    def _attend(self, path: str, pod: dict[str, Any]) -> None:
        if pod["metadata"].get("deletionTimestamp"):
            self._service.request("DELETE", path, {"gracePeriodSeconds": 0})
        elif pod["status"]["phase"] == "Pending":
            ends = pod["spec"].get("restartPolicy") == "Never"
            broken = any(one["image"].startswith("broken") for one in pod["spec"]["containers"])
            ready = "False" if ends or broken else "True"
            named = ("ContainersReady", "Ready")
            others = [
                one for one in pod["status"].get("conditions", ()) if one["type"] not in named
            ]
            phase = "Succeeded" if ends else "Running"
            conditions = [*others, *({"type": one, "status": ready} for one in named)]
            state = {"terminated": {"exitCode": 0}} if ends else {"running": {}}
            containers = [
                {
                    "name": one["name"], "image": one["image"], "imageID": one["image"],
                    "ready": ready == "True", "restartCount": 0, "state": state,
                    **({} if ends else resizing.reported_resources(one.get("resources") or {})),
                }
                for one in pod["spec"]["containers"]
            ]  # fmt: skip
            body = {
                "status": {
                    "phase": phase, "conditions": conditions, "containerStatuses": containers,
                }
            }  # fmt: skip
            self._service.request("PATCH", f"{path}/status", body, content_type=MERGE)
        elif pod["status"]["phase"] == "Running" and resizing.differs(
            pod["spec"], resizing.allocated(pod)["spec"]
        ):
            done = resizing.carry_out(pod, pod["metadata"]["generation"])
            body = {"status": done["status"]}
            self._service.request("PATCH", f"{path}/status", body, content_type=MERGE)
