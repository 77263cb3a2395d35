"""Agents of nodes for tests of workloads: they say that pods run, are ready, or have ended."""

import datetime as dt
from collections.abc import Callable
from typing import Any

from clusterstate.actions import objects
from clusterstate.objects.values import document
from clusterstate.queries.objects import decode_object
from clusterstate.queries.objects.lists import list_page
from clusterstate.queries.pods import find_pod_id
from tests.controllers.support import NOW, bind, make_node

Pod = dict[str, Any]


def make_agent(name: str, *, now: dt.datetime = NOW, **node: Any) -> None:
    """Create a node and the lease that its agent renews."""
    make_node(name, now=now, **node)
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": "kube-node-lease"},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": 40},
    }
    objects.create("Lease", "kube-node-lease", lease, now=now)


def pods(**labels: str) -> list[Pod]:
    """Return the pods of the namespace ``default`` that have these labels, by name."""
    found = [decode_object(item) for item in list_page("Pod", "default").items]
    return [one for one in found if labels.items() <= (one["metadata"].get("labels") or {}).items()]


def report(
    name: str, phase: str = "Running", *, ready: bool = True, now: dt.datetime = NOW
) -> None:
    """Say of a pod what its agent would."""
    condition = {
        "type": "Ready",
        "status": "True" if ready else "False",
        "lastTransitionTime": document.format_time(now),
    }

    def change(manifest: Pod) -> Pod:
        before = manifest.get("status") or {}
        others = [one for one in before.get("conditions") or () if one["type"] != "Ready"]
        return {
            **manifest,
            "status": {**before, "phase": phase, "conditions": [*others, condition]},
        }

    objects.update("Pod", "default", name, change, subresource="status", now=now)


def run_all(
    node: str = "n",
    *,
    now: dt.datetime = NOW,
    if_: Callable[[Pod], bool] = lambda pod: True,
) -> int:
    """Bind pods that wait, say of those that do not run that they are ready, end what was deleted.

    Returns how many pods that concerned.
    """
    done = 0
    for pod in pods():
        metadata = pod["metadata"]
        if not if_(pod):
            continue
        if metadata.get("deletionTimestamp"):
            objects.delete("Pod", "default", metadata["name"], {"gracePeriodSeconds": 0}, now=now)
        elif pod["status"]["phase"] == "Pending":
            if not pod["spec"].get("nodeName"):
                pod_id = find_pod_id("default", metadata["name"])
                assert pod_id is not None
                bind(pod_id, node, now=now)
            report(metadata["name"], now=now)
        else:
            continue
        done += 1
    return done
