"""Scenarios: the fate of a cluster over hours, in seconds, under one configuration or several.

A ``script`` states a world and what happens in it when; it comes from a document of a person, from
a public trace in its own format, or from the history of the live service. It is played in virtual
time on the queue and the core of the live scheduler, and the outcome is told and compared::

    document, traces (trace_files)     a Scenario, a public trace in one of seven formats -> Script
    script                             the world, and steps by time
    simulation.cluster                 queue, snapshot and cycles of the scheduler, with given time
    measuring                          shares in use, and fragmentation
    playing.play                       Script, configuration -> Outcome
    manifests                          what a pod's manifest says of its node and owner
    outcome                            each pod's fate, the cluster over time, figures
    policies                           configurations by a short name: least, most, packing ...
    comparing                          outcomes -> what differs by pod, node and figure
    tables, pictures, page             all of that as text, SVG, one HTML file
    durations                          times as people write them

Nothing here queries or keeps anything; chance comes from the script's seed, and time is counted
from the script's beginning (only how long it took is read from a clock).
"""
