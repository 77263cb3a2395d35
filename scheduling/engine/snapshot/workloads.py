"""Services, controllers and disruption budgets in the snapshot, which plugins look up."""

from collections.abc import Mapping, Sequence

from clusterstate.objects.rules.disruption import counts_groups, spares_unready
from clusterstate.objects.values.labels import (
    Selector,
    selector_from_label_selector,
    selector_from_set,
)
from clusterstate.objects.values.meta import ObjectMeta
from clusterstate.objects.values.workloads import (
    PodDisruptionBudget,
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
)
from scheduling.framework.types import DisruptionBudget, PodInfo

_CONTROLLER_VERSIONS = {
    "ReplicationController": "v1",
    "ReplicaSet": "apps/v1",
    "StatefulSet": "apps/v1",
}


_NO_SERVICES: Mapping[str, Selector] = {}


class Workloads:
    """The pod selectors of services and controllers, and the PodDisruptionBudgets.

    ``budget_version`` counts changes of budgets, ``selection_version`` changes of the selectors of
    services and controllers. A changed selector matters only to classes of pods that it may match,
    which ``_selects_anew`` and ``_owns_anew`` invalidate.
    """

    def __init__(self) -> None:
        self._services: dict[tuple[str, str], Selector] = {}
        # By namespace and one label that a pod must have for the service to select it.
        self._services_at: dict[tuple[str, str, str], dict[str, Selector]] = {}
        self._controllers: dict[tuple[str, str, str], Selector] = {}
        self._budgets: dict[tuple[str, str], DisruptionBudget] = {}
        self.budget_version = 0
        self.selection_version = 0

    def set_service(self, service: Service) -> None:
        """Add or replace a service; nothing changes if its selector is the same as before."""
        meta = service.metadata
        selector = selector_from_set(service.spec.selector)
        if self._services.get((meta.namespace, meta.name)) == selector:
            return
        self.remove_service(meta.namespace, meta.name)
        self._services[meta.namespace, meta.name] = selector
        if selector.requirements:
            self.selection_version += 1
            there = self._services_at.setdefault(_filed(meta.namespace, selector), {})
            there[meta.name] = selector
            self._selects_anew(meta.namespace, selector)

    def remove_service(self, namespace: str, name: str) -> None:
        """Remove a service; nothing happens if it is unknown."""
        selector = self._services.pop((namespace, name), None)
        if selector is not None and selector.requirements:
            filed = _filed(namespace, selector)
            there = self._services_at[filed]
            del there[name]
            if not there:
                del self._services_at[filed]
            self.selection_version += 1
            self._selects_anew(namespace, selector)

    def _selects_anew(self, namespace: str, selector: Selector) -> None:
        """Invalidate classes that a new or removed service's selector may match."""

    def _owns_anew(self, owner: tuple[str, str, str]) -> None:
        """Invalidate classes of a controller (kind, namespace, name) whose selector changed."""

    def set_controller(self, controller: ReplicationController | ReplicaSet | StatefulSet) -> None:
        """Add or replace a controller whose pods are spread by default.

        Nothing changes if its selector is the same: its status changes with each of its pods.
        """
        if isinstance(controller, ReplicationController):
            kind, selector = "ReplicationController", selector_from_set(controller.spec.selector)
        else:
            kind = type(controller).__name__
            selector = selector_from_label_selector(controller.spec.selector)
        key = _controller_key(kind, controller.metadata)
        if self._controllers.get(key) == selector:
            return
        self._controllers[key] = selector
        self.selection_version += 1
        self._owns_anew(key)

    def remove_controller(self, kind: str, namespace: str, name: str) -> None:
        """Remove a controller by kind (ReplicationController, ReplicaSet or StatefulSet)."""
        if self._controllers.pop((kind, namespace, name), None) is not None:
            self.selection_version += 1
            self._owns_anew((kind, namespace, name))

    def default_selector(self, pod: PodInfo) -> Selector | None:
        """Return the joined selector of a pod's services and controller, ``None`` when empty.

        Rule: plugins/helper/spread.go ``DefaultSelector``, v1.36.
        """
        if pod.owner is None and not self._services_at:
            return None
        namespace, filed = pod.namespace, self._services_at
        selecting = [
            selector
            for label in pod.labels.items()
            for selector in filed.get((namespace, *label), _NO_SERVICES).values()
            if selector.matches(pod.labels)
        ]
        kind, controller = "", None
        if pod.owner is not None:
            api_version, kind, name = pod.owner
            if api_version == _CONTROLLER_VERSIONS.get(kind):
                controller = self._controllers.get((kind, namespace, name))
        if controller is None or controller.nothing:
            if len(selecting) <= 1:
                return selecting[0] if selecting else None  # only one: nothing to join
        elif kind == "ReplicationController":
            selecting.append(controller)
        merged = {one.key: one.values[0] for selector in selecting for one in selector.requirements}
        found = selector_from_set(merged)
        if controller is not None and not controller.nothing and kind != "ReplicationController":
            found = found.add(controller.requirements)
        return found if found.requirements else None

    def set_budget(self, budget: PodDisruptionBudget) -> None:
        """Add or replace a PodDisruptionBudget."""
        meta, status = budget.metadata, budget.status
        self.keep_budget(
            DisruptionBudget(
                namespace=meta.namespace,
                name=meta.name,
                selector=selector_from_label_selector(budget.spec.selector),
                disruptions_allowed=status.disruptions_allowed,
                disrupted=frozenset(status.disrupted_pods),
                counts_groups=counts_groups(meta.annotations),
                spares_unready=spares_unready(
                    budget.spec.unhealthy_pod_eviction_policy,
                    healthy=status.current_healthy,
                    desired=status.desired_healthy,
                ),
            )
        )

    def keep_budget(self, budget: DisruptionBudget) -> None:
        """Add or replace a budget in the form that preemption uses."""
        self._budgets[(budget.namespace, budget.name)] = budget
        self.budget_version += 1

    def remove_budget(self, namespace: str, name: str) -> None:
        """Remove a PodDisruptionBudget."""
        self._budgets.pop((namespace, name), None)
        self.budget_version += 1

    def disruption_budgets(self) -> Sequence[DisruptionBudget]:
        """Return all PodDisruptionBudgets."""
        return list(self._budgets.values())


def _filed(namespace: str, selector: Selector) -> tuple[str, str, str]:
    first = selector.requirements[0]
    return namespace, first.key, first.values[0]


def _controller_key(kind: str, meta: ObjectMeta) -> tuple[str, str, str]:
    return (kind, meta.namespace, meta.name)
