"""Forms of requests and answers: parses bodies, and writes contents as the client accepts them.

::

    parsers, protobuf, wire    bodies: from bytes to values, from values to a checked manifest
                               (``wire``: also ``fieldValidation``)
    bodies, options            the metadata and items of bodies; query parameters and options
    versioning, pagination     the version in the path, ``limit`` and ``continue``
    negotiation                which parser reads a body, which renderer writes the answer
    replies                    the results of views, before a renderer writes them
    renderers                  the forms of an answer: JSON, YAML, protobuf, Table, a page
    tables, stored_tables,
    own_tables                 rows and columns as ``kubectl get`` prints them
    cells                      the cells of tables
    pages                      an API path as a page, for a person with a browser
    other_forms                paths under which objects have another form than the stored one
    exposition                 Prometheus' text format
    errors, failures           every failure as a ``Status``, in views and outside of them

Nothing here depends on the user, or reads the database.
"""
