"""Which pods must leave a node, and when: NoExecute taints, and labels that no longer match.

::

    judgement     which pods must leave a node by when, from their class and the node
    timers        follows the log and states a timer for each such pod
    brake         holds evictions back that would empty too much of a zone or namespace
    firing        judges what is due once more, and evicts it: condition, deletion, event
    workers       fires on several connections when much is due at once
    devices       pods whose devices have NoExecute taints: a controller of its own
    timekeeper    the loop of the timers worker, which calls all of these

    kubectl taint -> commit -> timers: pods on the node -> judgement: deadlines -> rows
    the clock     -> firing: rows that are due -> judged once more -> deletion

A timer follows from the rows alone: stating it twice, after a crash, or from nothing gives the same
timers (C22). ``clusterstate.objects.rules.eviction`` states the rules: it turns tolerationSeconds
into a deadline. ``actions.evictions`` writes the timers.
"""
