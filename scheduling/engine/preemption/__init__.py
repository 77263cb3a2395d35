"""Computes with arrays why nodes reject a class, and which pods to preempt there.

``plugins.default_preemption`` has the rule for which pods become victims, and on which node; its
``dry_run`` applies the rule to objects, and this package computes the same with arrays. ``Binder``
in the scheduling worker deletes the victims.

::

    filter_program    the filters of a profile for one class, as arrays
    row_program       runs it: why rows reject the class, and its victims on them
    victims           the cost of preemption on each row, cached from pod to pod
    budgets           which disruption budgets guard the pods of each class
"""
