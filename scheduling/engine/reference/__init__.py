"""The reference path: every plugin runs on every node.

::

    cycle        the scheduling cycle: from a pod and a snapshot to a decision
    decision     the record: the chosen node, the alternatives, the rejections
    record       a decision, packed for storage
    refusals     a cache of refusals, by class
"""
