"""What was decided about pods.

::

    decision_pages    a search across pods, and one decision with its nodes compared
    evictions         who leaves which node, when and why; approving a brake
"""
