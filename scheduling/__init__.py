"""Decide and react: knows ``clusterstate``, never the reverse.

Layers, each importing only what stands to its right (checked by import-linter)::

    apps > tasks > celery > loops > runner > controllers | whatif > reserved | binding > binder
         > sync | wake > plugins | engine > framework

``framework``, ``engine`` and ``plugins`` are the decision core: snapshot in, decision out, no
clock, no database. ``sync`` turns the change log into snapshot deltas and queue moves, ``binder``
turns decisions into actions, ``reserved`` and ``binding`` take the pods of profiles with Reserve,
Permit, PreBind or PostBind plugins through the rest of their way, ``runner`` joins them into a
cycle that ``loops`` keeps going for the life of the worker process, and ``wake`` tells it to look
again sooner. A lost wake-up costs a second, never a pod: the truth is in the rows.
"""
