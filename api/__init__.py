"""HTTP, framed by Django REST framework; rules about objects are admission's and actions'.

The rooms, each importing only from those below it (checked by import-linter); the docstring of each
is its map::

    __main__       the command that starts a web server
    asgi, urls     the entry point; which view answers a path
    serving        requests between server and Django: who asks, how much, whose turn
    running        ... and through Django, on a thread: one by one, or as a batch
    console        the operators' pages
    description    what the server says of itself: discovery, OpenAPI, ``/docs/``
    resources      what is served as resources: every kind, and what is Stowage's own
    stowage        the group ``stowage.dev``
    kinds          Kubernetes' kinds, by one viewset
    streaming      answers that stay open: watches, events
    server         between connection and view: turns, batches, limits, the audit log, metrics
    access         who asks, and what they may do
    forms          how requests and answers look: JSON, YAML, protobuf, tables, pages, errors
    clock          the clock; ``requests``, ``routes``: DRF's request, what a path names

The way of a request
--------------------

``serving`` takes a request from the connection, finds out on the event loop who sends it and
whether they may (so that nobody else's body is read), reads the body, and gives it a turn in a
*lane*. A thread of the lane hands it to Django (``running``); ``urls`` and ``kinds.routers`` find
the view. Every view is a ``kinds.views.StatusView``, and its one ``dispatch`` does, in this order::

    initialize_request   requests.Request around Django's
    initial              versioning (the path's version), authentication, permissions,
                         then negotiation (which renderer), so that nothing is told to strangers
    carry_out            the handler: a viewset's action; a dry run is rolled back
    handle_exception     forms.errors.handle, DRF's EXCEPTION_HANDLER: any failure becomes a Status
    finalize_response    the renderer writes the data; then ``answered``, once for each request

``answered(request, response)`` sees the finished answer of every request that came to a view, also
of those that were answered in a batch. The audit log (``server.audit``) looks at requests from
outside: ``serving`` tells it that one came, who sent it, and what was answered, also where no view
was asked and where a page was.

Each judgement is a class that DRF knows, named in ``settings.REST_FRAMEWORK``:

=================  ==============================================================================
authentication     ``access.auth``: bearer tokens, browsers' sessions, acting for others
permissions        ``access.permissions``: asks ``clusterstate.access`` for what a view ``wants``
parsers            ``forms.parsers``: JSON, YAML, Kubernetes' protobuf, and the four kinds of patch
renderers          ``forms.renderers``: JSON, YAML, protobuf, Table, PartialObjectMetadata, a page
negotiation        ``forms.negotiation``: which of them, by Content-Type and Accept
versioning         ``forms.versioning.PathVersioning``: ``/api/v1``, ``/apis/GROUP/VERSION``
pagination         ``forms.pagination.ContinuePagination``: ``limit`` and ``continue``
=================  ==============================================================================

There are no throttle classes. DRF asks one on a thread, when the request has a thread already, and
it can only refuse. Fairness is about who gets the next thread, and about waiting rather than being
refused. In ``server`` ``lanes`` gives each flow its turn before a thread is given away, and answers
429 where too many requests wait or one waited too long; ``shares`` tells it which flows give way,
and refuses nothing; ``budget`` answers 429 where a flow has too many bytes in memory, and ``room``
507 where the disk is nearly full, all with Retry-After. A throttle class would count the same once
more.

Views answer with *contents* (``forms.replies``): a stored object, a list of them, or a document.
Stored objects are text and stay text; only a renderer that needs more looks inside.

Batches, the one optimisation
-----------------------------

Creating, deleting and reading single objects is what clients do thousands of times a second. Such
requests that wait together run through the same view one after another, and each leaves its wish in
the ``server.batches.Batch`` of its thread instead of carrying it out; then one statement does the
wishes of all. Nothing else differs: authentication, permissions, parsers, validation, renderers and
the form of failures are the same objects, since the view is the same. A
``batches.DeferredAnswer`` stands for the answer meanwhile, and the view's own ``finalize_response``
completes it. The batch lanes call the view without Django's URL resolver and middleware, which have
nothing to say about these paths.
``tests/api/test_both_ways.py`` holds both ways equal for every status.

Objects of our own (``stowage.dev``)
------------------------------------

They are viewsets in ``stowage``. msgspec checks what is sent to them, and ``openapi3`` describes
them from the router.
"""
