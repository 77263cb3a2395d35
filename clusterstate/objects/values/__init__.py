"""Values in objects: typed views of manifests, quantities, times, labels, names, errors.

::

    meta, node, pod, workloads    lenses: frozen Structs over the part of a manifest that is read
    pod_group                     the lens over a PodGroup, and the conditions of one
    storage                       lenses over volumes, claims and their classes
    document                      a stored version of an object: JSON text with slots
    quantity, int_or_percent      amounts; bounds that are a number or a percentage
    labels                        label selectors, and the syntax of names
    addresses                     cluster IPs and node ports of Services
    moments, durations, cron      times that never overflow; durations of Go; schedules of CronJobs
    actor, causes                 who changed an object, and what for
    ending                        the condition DisruptionTarget and its reasons
    shapes, text_table            shapes of pods in a line of text; rows as lines of text
    errors                        what can be wrong with a request
    compatibility                 which version of Kubernetes is followed where they differ
    remembered, numbers           caches of functions of short texts; numbers that arrive as texts
"""
