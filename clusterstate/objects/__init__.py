"""Plain values: what Kubernetes objects mean, without any storage.

This package plays the role of ``k8s.io/api`` plus ``component-helpers``. It imports no Django, no
database driver and no scheduler, so that admission, the decision core, the API and the tests all
share one meaning of a quantity, a selector or a toleration.

Two views of an object exist. The *manifest* is the JSON document as a ``dict``: it is stored as
received and defaulted, with canonical amounts and without unknown fields. The *lens* is a frozen
``msgspec.Struct`` (``pod.Pod``, ``node.Node``, ...) over the part that decisions need:
``msgspec.convert(manifest, Pod)`` or ``msgspec.json.decode(text, type=Pod)``. A lens is never
written back.

Rooms; each imports only from those below it::

    dra             devices for claims: the structured allocator
    cel             the selectors of devices, in CEL
    wire | rules    how objects travel; rules about them
    registry        which kinds there are, with their types and fields
    values          what all of them are made of
"""
