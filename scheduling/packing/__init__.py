"""The packer: places all pods together, and bounds how much better any placement could be.

The scheduler takes one pod at a time, the best node first. That wastes capacity: of pods that would
fill a cluster exactly it places nine in ten. The packer looks for a better placement of the same
pods with CP-SAT, the solver of OR-tools, and gives an upper bound of its distance from the
optimum::

    problem    classes of pods, nodes, free amounts as numbers, and the value of a placement
    facts      a snapshot, its profiles and pods -> a Problem; which pods the numbers cannot state
    search     Problem -> placement: greedy, then a few nodes at a time solved anew; runs anywhere
    bounds     Problem -> upper bound of all placements, by linear programming
    purchase   shapes of nodes with prices -> the cheapest set found, and a lower bound
    patterns   fillings of one node, and sets composed of them, by column generation
    refilling  improves such a set: removes some nodes, fills others with their pods; compiled
    exchange   which nodes to remove and which to buy: several placements to choose from
    gangs      whether a group can be placed at all: exact, in a child process
    gang_facts a group that found no placement, as numbers
    child_process  how these processes start, lower their priority, and end
    process    ``search`` and ``purchase`` in a child process, bounded in time and memory

``scheduling.simulation.packing`` calls it for a world, and checks each placement with the
scheduler's own filters before it is reported; ``scheduling.engine.groups`` checks the placement of
a gang. OR-tools is an optional dependency (the extra ``solver``); only ``search``, ``bounds``,
``purchase`` and ``patterns`` import it, in the child process.
"""
