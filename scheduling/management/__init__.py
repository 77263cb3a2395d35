"""Management commands that decide: they need the engine, which clusterstate does not know.

::

    commands   one module per command
    files      what people's files hold: YAML, JSON, folders, lists, exports
    workloads  the pods that workloads in these files would have
    runs       playing a script under one or several configurations, and showing the outcome
"""
