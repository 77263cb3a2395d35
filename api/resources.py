"""The served resources: one viewset for all kinds, and own ones for those without a kind."""

import re
from typing import Final

from api.kinds import bindings, component_statuses, reviews
from api.kinds.routers import KubernetesRouter
from api.kinds.subresources import KindViewSet
from api.stowage import (
    audit_view,
    canaries,
    decision_search,
    decisions,
    evictions,
    permits,
    plans,
    selections,
    simulations,
    trail,
    waiting_times,
    webhooks,
    why,
)

_CORE = "api/v1"
_AUTHENTICATION = f"apis/{reviews.AUTHENTICATION}/v1"
_AUTHORIZATION = f"apis/{reviews.AUTHORIZATION}/v1"
_OWN = "apis/stowage.dev/v1"
_IN = "namespaces/{namespace}"

router = KubernetesRouter()
objects = router.register_kinds(KindViewSet)

for _prefix, _viewset in (
    (f"{_CORE}/{_IN}/bindings", bindings.BindingsViewSet),
    (f"{_CORE}/componentstatuses", component_statuses.ComponentStatusesViewSet),
    (f"{_CORE}/{_IN}/pods/{{name}}/decisions", decisions.DecisionsViewSet),
    (f"{_AUTHENTICATION}/selfsubjectreviews", reviews.SelfSubjectReviewViewSet),
    (f"{_AUTHENTICATION}/tokenreviews", reviews.TokenReviewViewSet),
    (f"{_AUTHORIZATION}/selfsubjectaccessreviews", reviews.SelfSubjectAccessReviewViewSet),
    (f"{_AUTHORIZATION}/selfsubjectrulesreviews", reviews.SelfSubjectRulesReviewViewSet),
    (f"{_AUTHORIZATION}/subjectaccessreviews", reviews.SubjectAccessReviewViewSet),
    (
        f"{_AUTHORIZATION}/{_IN}/localsubjectaccessreviews",
        reviews.LocalSubjectAccessReviewViewSet,
    ),
    (f"{_OWN}/evictions", evictions.EvictionListViewSet),
    (f"{_OWN}/nodes/{{node}}/evictions", evictions.EvictionListViewSet),
    (f"{_OWN}/{_IN}/evictions", evictions.EvictionsViewSet),
    (f"{_OWN}/{_IN}/pods/{{pod}}/evictions", evictions.EvictionListViewSet),
    (f"{_OWN}/nodes/{{node}}/usage", evictions.UsageViewSet),
    (f"{_OWN}/zones", evictions.ZonesViewSet),
    (f"{_OWN}/waitingpods", permits.WaitingPodsViewSet),
    (f"{_OWN}/{_IN}/waitingpods", permits.WaitingPodsViewSet),
    (f"{_OWN}/{_IN}/pods/{{name}}/permit", permits.PodPermitViewSet),
    (f"{_OWN}/{_IN}/pods/{{name}}/why", why.WhyViewSet),
    (f"{_OWN}/waitingtimes", waiting_times.WaitingTimesViewSet),
    (f"{_OWN}/{_IN}/waitingtimes", waiting_times.WaitingTimesViewSet),
    (f"{_OWN}/waitinggroups", why.WaitingGroupsViewSet),
    (f"{_OWN}/{_IN}/waitinggroups", why.WaitingGroupsViewSet),
    (f"{_OWN}/selections", selections.SelectionsViewSet),
    (f"{_OWN}/{_IN}/selections", selections.SelectionsViewSet),
    (f"{_OWN}/simulations", simulations.SimulationsViewSet),
    (f"{_OWN}/plans", plans.PlansViewSet),
    (f"{_OWN}/brakes", plans.BrakesViewSet),
    (f"{_OWN}/canaries", canaries.CanariesViewSet),
    (f"{_OWN}/headroom", simulations.HeadroomViewSet),
    (f"{_OWN}/nodeadvice", simulations.NodeAdviceViewSet),
    (f"{_OWN}/packings", simulations.PackingsViewSet),
    (f"{_OWN}/comparisons", simulations.ComparisonsViewSet),
    (f"{_OWN}/audit", audit_view.AuditViewSet),
    (f"{_OWN}/decisions", decision_search.DecisionSearchViewSet),
    (f"{_OWN}/changes", trail.ChangesViewSet),
    (f"{_OWN}/webhooks", webhooks.WebhooksViewSet),
    (f"{_OWN}/schedulerconfiguration", decisions.ConfigurationViewSet),
    (
        "apis/node.k8s.io/v1/runtimeclasses/{runtimeclass}/nodes",
        simulations.RuntimeClassNodesViewSet,
    ),
):
    router.register(_prefix, _viewset)

_ASKING: Final = re.compile(
    "|".join(
        "/" + "[^/]+".join(map(re.escape, re.split(r"\{\w+\}", path))) + "/?"
        for path, viewset, _ in router.served("")
        if viewset.asks
    )
)


def asks(path: str) -> bool:
    """Return whether a path without a kind is answered by asking an advisor."""
    return _ASKING.fullmatch(path) is not None
