"""Which pods must leave a node, and when: NoExecute taints, and labels that no longer match.

::

    judgement     which pods must leave a node by when, from their class and the node
    timers        follows the log and writes a timer for each such pod
    brake         holds evictions back that would empty too much of a zone or namespace
    firing        judges due pods once more, and evicts them: condition, deletion, event
    workers       fires on several connections when many pods are due at once
    devices       pods whose devices have NoExecute taints: a controller of its own
    timekeeper    the loop of the timers worker, which calls all of these

    kubectl taint -> commit -> timers: pods on the node -> judgement: deadlines -> rows
    the clock     -> firing: rows that are due -> judged once more -> deletion

A timer is a function of the rows alone: writing it twice, after a crash, or from nothing gives the
same timers (C22). ``clusterstate.objects.rules.eviction`` has the rules: it turns tolerationSeconds
into a deadline. ``actions.evictions`` writes the timers.
"""
