"""The packer: where pods go if all of them are looked at together, and how good that is at most.

The scheduler takes one pod at a time, the best node first. That leaves room unused: of pods that
would fill a cluster exactly it places nine in ten. The packer looks for a better placement of the
same pods with CP-SAT, the solver of OR-tools, and says how far from the best possible it is at
most::

    problem    classes of pods, nodes, what is free: numbers, and what a placement of them is worth
    facts      a snapshot, its profiles and pods -> a Problem; which pods the numbers cannot state
    search     Problem -> placement: greedy, then a few nodes at a time solved anew; runs anywhere
    bounds     Problem -> what no placement can exceed, from linear programming
    purchase   shapes of nodes with prices -> the cheapest set found, and what none goes below
    patterns   what one node may be filled with, and a set put together of that; column generation
    refilling  how such a set gets better: some nodes out, others filled with their pods; compiled
    exchange   which nodes to remove and which to buy: several placements to choose from
    gangs      whether a group can be placed at all: exact, in a process of its own
    gang_facts a group that found no placement, as numbers
    child_process  how these processes start, yield to everybody, and end
    process    ``search`` and ``purchase`` in a process of their own, bounded in time and memory

``scheduling.simulation.packing`` asks it about a world, and proves each placement by the
scheduler's own filters before it is told; the placement of a gang is proved by
``scheduling.engine.groups``. OR-tools is an optional dependency (the extra
``solver``); ``search``, ``bounds``, ``purchase`` and ``patterns`` import it, in that other process
alone.
"""
