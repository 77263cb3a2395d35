"""The paths of the service."""

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import path


def healthz(request: HttpRequest) -> HttpResponse:
    """Answer ok: this process serves requests."""
    return HttpResponse("ok", content_type="text/plain")


urlpatterns = [path("healthz", healthz), path("admin/", admin.site.urls)]
