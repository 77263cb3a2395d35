"""How requests and answers look: bodies in, contents out, in the form that a client asks for.

::

    parsers, protobuf, wire    bodies: from bytes to values, from values to a checked manifest
                               (``wire``: also ``fieldValidation``)
    bodies, options            the metadata and items of bodies; what stands beside the object
    versioning, pagination     the version in the path, ``limit`` and ``continue``
    negotiation                which parser reads a body, which renderer writes the answer
    replies                    what views answer with, before a renderer writes it
    renderers                  the forms of an answer: JSON, YAML, protobuf, Table, a page
    tables, stored_tables,
    own_tables                 rows and columns as ``kubectl get`` prints them
    cells                      the cells of tables
    pages                      an API path as a page, for a person with a browser
    other_forms                paths under which objects have another form than the stored one
    exposition                 Prometheus' text format
    errors, failures           every failure as a ``Status``, by a view and where no view is asked

Nothing here knows who asks, or reads the database.
"""
