"""Which view answers a path. Every API path is answered with and without a trailing slash.

Paths that name objects of a kind go to one viewset (`api.viewsets`), what has no kind to its own.
"""

from django.contrib import admin
from django.urls import path, re_path

from api import (
    audit_view,
    bindings,
    containers,
    decisions,
    documents,
    evictions,
    first_autoscalers,
    health,
    metrics,
    openapi,
    openapi3,
    permits,
    reviews,
    selections,
    simulations,
    trail,
)
from api.routers import KubernetesRouter
from api.viewsets import ObjectViewSet

_CORE = "api/v1"
_AUTHENTICATION = f"apis/{reviews.AUTHENTICATION}/v1"
_AUTHORIZATION = f"apis/{reviews.AUTHORIZATION}/v1"
_OWN = "apis/stowage.dev/v1"
_IN = "namespaces/{namespace}"

router = KubernetesRouter()
objects = router.register_kinds(ObjectViewSet)

for _prefix, _viewset in (
    (f"{_CORE}/{_IN}/bindings", bindings.BindingsViewSet),
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
    (f"{_OWN}/selections", selections.SelectionsViewSet),
    (f"{_OWN}/{_IN}/selections", selections.SelectionsViewSet),
    (
        f"apis/autoscaling/v1/{_IN}/horizontalpodautoscalers",
        first_autoscalers.FirstAutoscalersViewSet,
    ),
    (f"{_OWN}/simulations", simulations.SimulationsViewSet),
    (f"{_OWN}/headroom", simulations.HeadroomViewSet),
    (f"{_OWN}/audit", audit_view.AuditViewSet),
    (f"{_OWN}/changes", trail.ChangesViewSet),
    (f"{_OWN}/schedulerconfiguration", decisions.ConfigurationViewSet),
    (
        "apis/node.k8s.io/v1/runtimeclasses/{runtimeclass}/nodes",
        simulations.RuntimeClassNodesViewSet,
    ),
):
    router.register(_prefix, _viewset)

urlpatterns = [
    *(
        re_path(
            rf"^api/v1/{of}/(?P<name>[^/]+)/{subresource}{rest}/?$",
            containers.ContainersView.as_view(),
            {"plural": plural, "subresource": subresource},
        )
        for of, plural, subresource, rest in containers.PATHS
    ),
    re_path(r"^api/v1/?$", documents.CoreView.as_view()),
    re_path(r"^api/?$", documents.CoreVersionsView.as_view()),
    re_path(r"^apis/?$", documents.GroupsView.as_view()),
    re_path(r"^apis/(?P<group>[^/]+)/?$", documents.GroupView.as_view()),
    re_path(r"^apis/(?P<group>[^/]+)/(?P<version>[^/]+)/?$", documents.GroupVersionView.as_view()),
    *router.urls,
    re_path(r"^version/?$", documents.VersionView.as_view()),
    re_path(r"^openapi/v2/?$", openapi.v2),
    re_path(r"^openapi/v3/?$", openapi3.v3),
    re_path(r"^openapi/v3/(?P<key>.+?)/?$", openapi3.v3),
    re_path(r"^(?:healthz|livez)/?$", health.alive),
    re_path(r"^readyz/?$", health.ready),
    re_path(r"^metrics/?$", metrics.view),
    path("admin/", admin.site.urls),
    re_path(r"^$", documents.RootView.as_view()),
]

handler404 = "api.errors.unknown_path"
handler500 = "api.errors.server_error"
