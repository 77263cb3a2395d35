"""The change log: an order of all changes that followers can trust.

::

    changes     takes revisions, appends changes, reads the changes after a revision
    lineage     what a revision promises, also after a crash
    replica     reads from a replica, as far as it has come
    wake        hints through Redis that a transaction committed
    actors      numbers for the authors of changes
    pod_log     changes of pods as NumPy columns
    blocks      old changes, packed into compressed columns
"""
