"""The change log: an order of all changes that followers can trust.

::

    changes     takes revisions, appends changes, reads what came after a revision
    lineage     what a revision promises, also after a crash
    wake        hints through Redis that something was committed
    actors      who made a change, by number
    pod_log     changes of pods as NumPy columns
    blocks      changes packed into compressed columns, for the past
"""
