"""Updates of open pages: change events for browsers, and caches shared by users.

::

    stream            server-sent events: which objects changed, four times a second at most
    fragment_cache    parts of pages, and how often open pages refresh them
    node_cache        the nodes with the requests of their pods, in memory, from the change log
    shared_answers    answers of an advisor that open pages share for a few seconds
"""
