"""State that loops and controllers store.

::

    controller_state    a controller's cursor in the change log, and a small document
    progress            how far each loop has come
    aside               objects that make a follower fail, set aside
    metrics             totals of all processes, and gauges of each
"""
