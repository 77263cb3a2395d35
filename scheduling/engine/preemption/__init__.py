"""Why nodes reject a class, and which pods would have to leave them, in numbers.

``plugins.default_preemption`` has the rule for which pods become victims, and on which node; its
``dry_run`` states the rule with objects, and this package computes the same in numbers. ``Binder``
in the scheduling worker deletes the victims.

::

    filter_program    the filters of a profile for one class, as arrays
    row_program       runs it: why rows reject the class, and its victims on them
    victims           the cost of preemption on each row, cached from pod to pod
    budgets           which disruption budgets guard the pods of each class
"""
