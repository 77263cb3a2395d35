"""The reference path: every plugin is asked about every node.

::

    cycle        the scheduling cycle: a pod and a snapshot in, a decision out
    decision     what was chosen, from what, and why not elsewhere
    record       a decision packed to be kept
    refusals     a class's refusal, as long as it still holds
"""
