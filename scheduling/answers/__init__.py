"""Answers about scheduling that change no pod: what would happen, and what happened and why.

::

    questions    what api may ask: simulations, headroom, landings of evicted pods, decisions,
                 the configuration in force
    replay       a recorded decision made again, on the cluster as it was then

A question about the live cluster is answered on a copy of a mirror (``scheduling.worker.mirror``)
that this process keeps up with the change log; a question about the past is answered on a snapshot
that is rebuilt from stored documents and the change log. ``scheduling.simulation`` computes the
answers; it does not query. Answers take from the worker only its mirror and its profiles.
"""
