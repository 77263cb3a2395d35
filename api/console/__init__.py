"""The console: where people see the cluster, try a change before they make it, and understand.

::

    browser --https--> API server --(proxy)--> console's process --> pages: a lane, Django, views
                                                                --> stream: open while a page is

A page is a Django view that reads, a template, and no rule of its own: what may be done is asked of
``clusterstate.access`` by ``page.layout.require``, what would happen of ``scheduling.answers``, and
what is done is done by ``clusterstate.actions``. A change of nodes or pods is a plan: previewed,
confirmed and followed by what serves ``/apis/stowage.dev/v1/plans``. Pages hold their state in the
address, so that every view of the cluster can be sent to a colleague.

Pages stay true by ``live.stream``: it tells an open page which objects changed, and each part of a
page that shows them asks for itself again (htmx); idiomorph changes what differs, so that focus,
selection and scroll position stay. The map of the fleet takes columns instead of HTML.

Scripts are small modules in ``static/console``; nothing is built, nothing is loaded from elsewhere,
and the policy of every page allows neither inline scripts nor styles nor ``eval``.

::

    urls         the paths
    proxy        how the API's servers hand requests over to the console's process
    palette      Ctrl+K: pages, objects and actions by what was typed
    fleet        the map of all nodes, a node, its devices
    pods         the list of pods, a pod, a new pod, why pods wait
    plans        changes of nodes and pods: what if, preview, confirmation, progress
    decisions    what was decided about pods, and evictions
    scheduler    the configuration, its trials and comparisons
    objects      objects of every kind, and the audit log
    people       signing in and one's own account
    page         what pages are made of: frame, rights, moment, words
    live         what keeps open pages true: news for browsers, shared caches
"""
