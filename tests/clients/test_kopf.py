"""An operator written with PyPI's kopf: it reacts to pods that come, change and go."""

import asyncio
import threading

import kopf
import pytest
from kubernetes import client, config

from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.db]

FINALIZER = "example.org/operator"


class Operator:
    """Runs kopf's handlers in a thread until the test ends."""

    def __init__(self, cluster):
        self.registry = kopf.OperatorRegistry()
        self.settings = kopf.OperatorSettings()
        self.settings.persistence.finalizer = FINALIZER
        self.settings.posting.level = 20
        self.settings.execution.max_workers = 2
        self._kubeconfig, self._namespace = str(cluster.kubeconfig), cluster.namespace
        self._ready, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.raised = None

    def _run(self):
        @kopf.on.login(registry=self.registry)
        def login(**_):
            return kopf.login_with_kubeconfig(**_)

        try:
            asyncio.run(
                kopf.operator(
                    registry=self.registry, settings=self.settings, standalone=True,
                    namespaces=[self._namespace], ready_flag=self._ready, stop_flag=self._stop,
                )
            )  # fmt: skip
        except Exception as error:  # noqa: BLE001  the test's own thread looks at it
            self.raised = error

    def __enter__(self):
        self._thread.start()
        assert self._ready.wait(30), self.raised
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join(20)
        assert self.raised is None


def test_an_operator_follows_a_pod_from_its_creation_to_its_end(cluster, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    core = client.CoreV1Api(config.new_client_from_config(str(cluster.kubeconfig)))
    operator = Operator(cluster)
    followed = {"registry": operator.registry, "labels": {"operated": "yes"}}
    seen = []

    @kopf.on.create("pods", **followed)
    def created(body, patch, **_):
        patch.meta.annotations["example.org/greeted"] = body["metadata"]["name"]
        kopf.info(body, reason="Greeted", message="Hello.")
        return {"greeted": True}

    @kopf.on.field("pods", field="metadata.labels.color", **followed)
    def colored(old, new, **_):
        seen.append((old, new))

    @kopf.on.delete("pods", **followed)
    def deleted(name, **_):
        seen.append(("deleted", name))

    def pod():
        named = core.list_namespaced_pod(
            cluster.namespace, field_selector="metadata.name=operated"
        ).items
        return named[0] if named else None

    with operator:
        core.create_namespaced_pod(cluster.namespace, cluster.pod("operated", operated="yes"))
        until(
            lambda: (pod().metadata.annotations or {}).get("example.org/greeted") == "operated",
            what="the operator's greeting",
        )
        assert pod().metadata.finalizers == [FINALIZER]
        until(lambda: pod().status.phase == "Running", what="the pod to run")
        core.patch_namespaced_pod(
            "operated", cluster.namespace, {"metadata": {"labels": {"color": "blue"}}}
        )
        until(lambda: (None, "blue") in seen, what="the operator to see the color")
        until(
            lambda: any(
                event.reason == "Greeted"
                for event in core.list_namespaced_event(
                    cluster.namespace, field_selector="involvedObject.name=operated"
                ).items
            ),
            what="the operator's event",
        )
        core.delete_namespaced_pod("operated", cluster.namespace)
        until(lambda: pod() is None, what="the pod to be gone")
    assert ("deleted", "operated") in seen
