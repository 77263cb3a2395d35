"""Which view answers a path. Every API path is answered with and without a trailing slash.

What is served as resources stands in `api.resources`; here are documents, health and the admin.
"""

from django.contrib import admin
from django.urls import include, path, re_path

from api import resources
from api.access import issuer
from api.console.page import layout
from api.description import documents, openapi, openapi3, reference
from api.kinds import containers
from api.server import health, metrics

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
    *resources.router.urls,
    re_path(r"^version/?$", documents.VersionView.as_view()),
    re_path(r"^openapi/v2/?$", openapi.v2),
    re_path(r"^openapi/v3/?$", openapi3.v3),
    re_path(r"^openapi/v3/(?P<key>.+?)/?$", openapi3.v3),
    re_path(r"^\.well-known/openid-configuration/?$", issuer.configuration),
    re_path(r"^openid/v1/jwks/?$", issuer.keys),
    re_path(r"^docs/?$", reference.ReferenceView.as_view()),
    re_path(r"^docs/(?P<key>.+?)/?$", reference.ReferenceView.as_view()),
    re_path(r"^(?:healthz|livez)/?$", health.alive),
    re_path(r"^readyz/?$", health.ready),
    re_path(r"^(?P<endpoint>healthz|livez|readyz)/(?P<name>.+?)/?$", health.single),
    re_path(r"^metrics/?$", metrics.view),
    path("admin/", admin.site.urls),
    path("console/", include("api.console.urls")),
    re_path(r"^$", layout.first_page(documents.RootView.as_view())),
]

handler400 = "api.console.page.layout.bad_request"
handler403 = "api.console.page.layout.forbidden"
handler404 = "api.console.page.layout.unknown"
handler500 = "api.console.page.layout.server_error"
