"""Descriptions of the API, for clients and people.

::

    discovery, documents     the groups, versions and resources; their views
    descriptions             descriptions of kinds and fields: the text of ``kubectl explain``
    openapi, openapi3        OpenAPI v2 and v3, from the registry of kinds and the router
    reference                ``/docs/``: the same as pages for people
"""
