"""Scenarios: simulate hours of a cluster within seconds, under one configuration or several.

A ``script`` states a world and its events by time; its source is a ``Scenario`` document, a public
trace in its own format, or the history of the live service. It runs in virtual time on the queue
and the core of the live scheduler, and the outcomes are compared::

    document, traces (trace_files)     a Scenario, a public trace in one of seven formats -> Script
    script                             the world, and steps by time
    simulation.cluster                 queue, snapshot and cycles of the scheduler, with given time
    measuring                          shares in use, and fragmentation
    playing.play                       Script, configuration -> Outcome
    manifests                          a pod's node and owner, from its manifest
    outcome                            each pod's timeline, the cluster over time, figures
    policies                           configurations by a short name: least, most, packing ...
    comparing                          outcomes -> differences by pod, node and figure
    tables, pictures, page             outcomes and differences as text, SVG, one HTML file
    durations                          times as people write them

Nothing here queries or stores anything; random choices come from the script's seed, and time is
counted from the script's beginning (a clock is read only for the duration of the run).
"""
