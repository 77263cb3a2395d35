"""Why nodes reject a class, and which pods would have to leave them, in numbers.

Which pods become victims, and on which node, is the rule of ``plugins.default_preemption``; its
``dry_run`` states the rule with objects, and this package answers the same in numbers. ``Binder``
in the scheduling worker deletes the victims.

::

    filter_program    the filters of a profile for one class, as arrays
    row_program       runs it: why rows reject the class, and who would have to leave
    victims           what making room would cost on each row, kept from pod to pod
    budgets           which disruption budgets guard the pods of each class
"""
