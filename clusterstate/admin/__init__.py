"""Admin screens by noun; every save calls an action.

A form is another way to write a manifest: it is turned into the same change of the same document
that a PATCH would make, through the same admission, so that the console cannot do what the API
could not. What admission finds wrong is shown in the form before anything is written. Models here
are for lists, filters and permissions; no screen calls ``Model.save``.
"""

from django.contrib import admin

from clusterstate.admin import access, audit, classes, configuration, evictions, nodes, pods

admin.site.index_title = "Overview"
admin.site.index_template = "clusterstate/dashboard.html"

__all__ = ["access", "audit", "classes", "configuration", "evictions", "nodes", "pods"]
