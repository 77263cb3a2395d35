"""Speed, measured the same way every time: workloads as data, one JSON line for each result.

The shapes are those of Kubernetes' own scheduler_perf (test/integration/scheduler_perf, v1.36):
nodes of 4 CPUs, 32 GiB and 110 pods; pods of 100m and 500Mi. ``workloads`` holds them as values,
``engine`` runs one on the decision core alone, ``service`` on a whole running service over HTTP.
``python -m tests.perf`` is the front (``command``); ``make bench`` runs it.

A figure here is never an assertion: machines are shared and noisy. What a figure means is in its
line: pods decided or bound, seconds of wall and of CPU, and the size of the process.
"""
