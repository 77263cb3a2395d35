"""The console: where people see the cluster, try a change before they make it, and understand.

::

    browser --https--> API server --(gate)--> console's process --> pages: a lane, Django, views
                                                                --> stream: open while a page is

A page is a Django view that reads, a template, and no rule of its own: what may be done is asked of
``clusterstate.access`` by ``frame.require``, what would happen of ``scheduling.answers``, and what
is done is done by ``clusterstate.actions``. A change of nodes or pods is a plan: previewed,
confirmed and followed by what serves ``/apis/stowage.dev/v1/plans``. Pages hold their state in the
address, so that every view of the cluster can be sent to a colleague.

Pages stay true by ``stream``: it tells an open page which objects changed, and each part of a page
that shows them asks for itself again (htmx); idiomorph changes what differs, so that focus,
selection and scroll position stay. The map of the fleet takes columns instead of HTML.

Scripts are small modules in ``static/console``; nothing is built, nothing is loaded from elsewhere,
and the policy of every page allows neither inline scripts nor styles nor ``eval``.

=============  ====================================================================================
``frame``      what every page has: sign-in, rights, errors as pages, the policy, navigation
``then``       the past of pages: the moment that an address asks for, and links that stay there
``words``      times, amounts and shares as people read them; template filters
``kept``       the nodes with what is asked of them, kept in memory from the change log
``language``   the query language of lists
``stream``     server-sent events: which objects changed, four times a second at most
``gate``       how the API's servers hand requests over to the console's process
``asked``      the changes that an address or a text asks for, as a plan's; the same in kubectl
``outcome``    what a plan foretells, and how far it is, as people read it
``fates``      what becomes of the pods that leave for a plan, counted for pictures
``hindrances`` what stands in the way of a pod, read from the scheduler's sentence
``unforetold`` evicting pods by who may do that and may have no plan made
``signing``    signing in and out, with one-time codes; ``company``: by the company's accounts
``pace``       latency and throughput of the last hour, drawn on the server
``shared``     answers of an advisor that open pages share for a few seconds
others         a page, or the pages of a kind, each
=============  ====================================================================================
"""
