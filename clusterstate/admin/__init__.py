"""Admin screens by noun; every save calls an action.

A form is another way to write a manifest: it is turned into the same change of the same document
that a PATCH would make, through the same admission, so that the console cannot do what the API
could not. What admission finds wrong is shown in the form before anything is written. Models here
are for lists, filters and permissions; no screen calls ``Model.save``.

::

    nodes          nodes with their taints: look, edit, cordon, uncordon, delete
    node_forms     the forms of a node and of its taints
    node_changes   what a form asks, and the requests that it becomes
    pods           where each pod is, or why it waits
    classes        RuntimeClasses, PriorityClasses and namespaces
    evictions      who leaves which node, when and why
    configuration  the scheduler's configuration: its revisions, and the next one
    audit          the audit log
    access         who may log in and what they may do; failed log-ins
    dashboard      the first page
    navigation     the sidebar: what the person may see
    roles          what people's roles let them see and change
    trail          an object's history
    base           what all screens have in common
    forms          text fields for maps, and refusals beside the fields of a form
    look           small pieces of HTML
    clock          where the screens read the time
"""

from django.contrib import admin

from clusterstate.admin import access, audit, classes, configuration, evictions, nodes, pods

admin.site.index_title = "Overview"
admin.site.index_template = "clusterstate/dashboard.html"

__all__ = ["access", "audit", "classes", "configuration", "evictions", "nodes", "pods"]
