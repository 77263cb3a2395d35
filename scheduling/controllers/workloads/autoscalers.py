"""HorizontalPodAutoscalers: carries out what ``autoscaler_rules`` decides about their targets."""

from typing import Final

from clusterstate.objects.values.meta import Manifest
from scheduling.controllers.workloads import autoscaler_rules as rules
from scheduling.controllers.workloads.control import NamespaceControl

TARGETS: Final = ("Deployment", "ReplicaSet", "StatefulSet", "ReplicationController")
"""The kinds that have a number of replicas."""


def sync(control: NamespaceControl, autoscaler: Manifest) -> None:
    """Keep the target's size within the bounds; a condition says why metrics are not read."""
    named = autoscaler["spec"].get("scaleTargetRef") or {}
    target = None
    if named.get("kind") in TARGETS:
        target = next(
            (
                one
                for one in control.world.owners[named["kind"]]
                if one["metadata"]["name"] == named.get("name")
            ),
            None,
        )
    actions = rules.reconcile(autoscaler, target, now=control.now)
    for type_, reason, message in actions.events:
        control.record_event(autoscaler, type_, reason, message)
    if target is not None and actions.replicas is not None:
        size = actions.replicas
        control.write(target, lambda one: {**one, "spec": {**one["spec"], "replicas": size}})
    control.write_status(autoscaler, actions.status)
