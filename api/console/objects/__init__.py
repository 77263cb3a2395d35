"""Objects of every served kind, and the audit log.

::

    records    the audit log, the feed of changes, and the objects of every served kind
    merging    a person's change of an object and what others changed meanwhile
"""
