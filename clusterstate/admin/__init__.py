"""Admin screens by noun; every save calls an action.

A form is another way to write a manifest: it becomes the same change of the same document as a
PATCH, through the same admission, so that the admin cannot do more than the API. Errors of
admission are shown in the form before anything is written. Models here are for lists, filters and
permissions; no screen calls ``Model.save``.

::

    nodes          nodes with their taints: look, edit, cordon, uncordon, delete
    node_forms     the forms of a node and of its taints
    node_changes   changes of the node form, and the requests made of them
    pods           the node of each pod, or why it is pending
    classes        RuntimeClasses, PriorityClasses and namespaces
    evictions      pods that will be evicted: when and why
    configuration  the scheduler's configuration: its revisions, and a form for the next one
    audit          the audit log
    access         users, groups and tokens; failed log-ins
    dashboard      the first page
    navigation     the sidebar: links to the screens that a person may see
    roles          permissions that people's roles give them
    trail          an object's history
    base           base classes of all screens
    forms          text fields for maps, and errors of admission beside a form's fields
    look           small pieces of HTML
    clock          the time of a request
"""

from django.contrib import admin

from clusterstate.admin import access, audit, classes, configuration, evictions, nodes, pods

admin.site.index_title = "Overview"
admin.site.index_template = "clusterstate/dashboard.html"

__all__ = ["access", "audit", "classes", "configuration", "evictions", "nodes", "pods"]
