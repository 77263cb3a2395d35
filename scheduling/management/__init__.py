"""Management commands that need the engine, which clusterstate does not import.

::

    commands   one module per command
    files      reads users' files: YAML, JSON, folders, lists, exports
    workloads  creates the pods of workloads in these files
    runs       runs a script under one or several configurations, and shows the outcome
"""
