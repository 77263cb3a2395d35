"""Which view answers a path. Every API path is answered with and without a trailing slash.

Paths that name objects of a kind all go to ``ResourceView``; what they name is read by ``routes``.
"""

from django.contrib import admin
from django.urls import path, re_path

from api import (
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
    viewsets,
)

urlpatterns = [
    re_path(
        r"^api/v1/namespaces/(?P<namespace>[^/]+)/bindings/?$", bindings.BindingsView.as_view()
    ),
    re_path(
        r"^api/v1/namespaces/(?P<namespace>[^/]+)/pods/(?P<name>[^/]+)/decisions"
        r"(?:/(?P<decision>[^/]+))?/?$",
        decisions.DecisionsView.as_view(),
    ),
    *(
        re_path(
            rf"^api/v1/{of}/(?P<name>[^/]+)/{subresource}{rest}/?$",
            containers.ContainersView.as_view(),
            {"plural": plural, "subresource": subresource},
        )
        for of, plural, subresource, rest in containers.PATHS
    ),
    re_path(r"^api/v1/?$", documents.CoreView.as_view()),
    re_path(r"^api/v1/.", viewsets.ResourceView.as_view()),
    re_path(r"^api/?$", documents.CoreVersionsView.as_view()),
    re_path(r"^apis/?$", documents.GroupsView.as_view()),
    re_path(r"^apis/(?P<group>[^/]+)/?$", documents.GroupView.as_view()),
    re_path(r"^apis/(?P<group>[^/]+)/(?P<version>[^/]+)/?$", documents.GroupVersionView.as_view()),
    *(
        re_path(rf"^apis/{path}/?$", view.as_view())
        for path, view in (
            (r"authentication\.k8s\.io/v1/selfsubjectreviews", reviews.SelfSubjectReviewView),
            (r"authentication\.k8s\.io/v1/tokenreviews", reviews.TokenReviewView),
            (
                r"authorization\.k8s\.io/v1/selfsubjectaccessreviews",
                reviews.SelfSubjectAccessReviewView,
            ),
            (
                r"authorization\.k8s\.io/v1/selfsubjectrulesreviews",
                reviews.SelfSubjectRulesReviewView,
            ),
            (r"authorization\.k8s\.io/v1/subjectaccessreviews", reviews.SubjectAccessReviewView),
            (
                (
                    r"authorization\.k8s\.io/v1/namespaces/(?P<namespace>[^/]+)"
                    r"/localsubjectaccessreviews"
                ),
                reviews.LocalSubjectAccessReviewView,
            ),
        )
    ),
    re_path(r"^apis/stowage\.dev/v1/evictions/?$", evictions.EvictionsView.as_view()),
    re_path(r"^apis/stowage\.dev/v1/zones/?$", evictions.ZonesView.as_view()),
    re_path(r"^apis/stowage\.dev/v1/nodes/(?P<node>[^/]+)/usage/?$", evictions.UsageView.as_view()),
    re_path(
        r"^apis/stowage\.dev/v1/nodes/(?P<node>[^/]+)/evictions/?$",
        evictions.EvictionsView.as_view(),
    ),
    re_path(
        r"^apis/stowage\.dev/v1/namespaces/(?P<namespace>[^/]+)/evictions/?$",
        evictions.EvictionsView.as_view(),
    ),
    re_path(
        r"^apis/stowage\.dev/v1/namespaces/(?P<namespace>[^/]+)/evictions/(?P<name>[^/]+)/?$",
        evictions.EvictionsView.as_view(),
    ),
    re_path(
        r"^apis/stowage\.dev/v1/namespaces/(?P<namespace>[^/]+)/pods/(?P<pod>[^/]+)/evictions/?$",
        evictions.EvictionsView.as_view(),
    ),
    re_path(
        r"^apis/stowage\.dev/v1(?:/namespaces/(?P<namespace>[^/]+))?/waitingpods/?$",
        permits.WaitingPodsView.as_view(),
    ),
    re_path(
        r"^apis/stowage\.dev/v1/namespaces/(?P<namespace>[^/]+)/waitingpods/(?P<name>[^/]+)/?$",
        permits.WaitingPodsView.as_view(),
    ),
    re_path(
        r"^apis/stowage\.dev/v1/namespaces/(?P<namespace>[^/]+)/(?:waiting)?pods/(?P<name>[^/]+)"
        r"/permit/?$",
        permits.PermitView.as_view(),
    ),
    re_path(
        r"^apis/stowage\.dev/v1(?:/namespaces/(?P<namespace>[^/]+))?/selections/?$",
        selections.SelectionsView.as_view(),
    ),
    re_path(r"^apis/stowage\.dev/v1/simulations/?$", simulations.SimulationsView.as_view()),
    re_path(
        r"^apis/stowage\.dev/v1/schedulerconfiguration/?$", decisions.ConfigurationView.as_view()
    ),
    re_path(r"^apis/stowage\.dev/v1/headroom/?$", simulations.HeadroomView.as_view()),
    re_path(
        r"^apis/autoscaling/v1/namespaces/(?P<namespace>[^/]+)/horizontalpodautoscalers/?$",
        first_autoscalers.FirstAutoscalersView.as_view(),
    ),
    re_path(
        r"^apis/node\.k8s\.io/v1/runtimeclasses/(?P<name>[^/]+)/nodes/?$",
        simulations.RuntimeClassNodesView.as_view(),
    ),
    re_path(r"^apis/[^/]+/[^/]+/.", viewsets.ResourceView.as_view()),
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
