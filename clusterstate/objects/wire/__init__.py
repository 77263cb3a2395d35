"""Objects on the wire: JSON and YAML texts, protobuf, patches and server-side apply.

::

    reading                                        JSON and YAML become values, with limits
    protobuf, protobuf_fields, protobuf_values     Kubernetes' protobuf form
    patching                                       JSON, merge and strategic merge patches
    managed_fields, field_sets                     server-side apply; which manager owns which field
"""
