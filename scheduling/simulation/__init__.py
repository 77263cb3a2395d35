"""Simulations: a document in, results out, by the live scheduler's core, without stored state.

A ``Simulation`` states a world (empty, or the live one with changes) and pods to place in it::

    document.read    document -> Simulation, or Invalid with every wrong field
    world            the base with the document's objects; lookups for admission
    preparing        checks and admits a pod of the document, and finds its class
    claims           does what controllers and bindings do about claims
    leaving          effects of an eviction on the node and on budgets
    running.run      Simulation and Base -> the answer, with ``status.results``: one result per pod
    headroom, room   how many more pods like one fit, and why the next one does not; counted at once
    verdicts         runs every filter on every node, also after the first rejection
    explanation      rejections, scores, the choice; ``causes``: the RuntimeClass's part
    remedies         finds what would let a pod fit: ``needs`` of nodes -> ``edits``, each proved
    shortages        what the claims of a pod lack, and which pods use it
    makings          volumes and ResourceSlices to create for such a pod
    groups           waiting pods grouped by what rejects them
    gangs            what a PodGroup lacks; how many more gangs of a shape fit
    gang_remedies    finds what would let a PodGroup fit
    node_advice      which nodes to add for waiting pods
    node_exchange    which nodes to remove and which to add instead: several choices
    node_advice_document  parses the question about both, and builds the answer
    packing          places all pods together, and bounds the best possible result
    moves            who may move, at which price, in which order
    making_room      which pods to move to other nodes so that a waiting one, or a group, fits
    improving        which pods to move so that zones are balanced, or soft rules kept
    checks           checks what a plugin declares about itself, for tests of plugins
    plan_document    a ``Plan``: the changes to predict; plan_undo: the changes that undo them
    cluster          a cluster in virtual time: the live queue, hints and batches
    foresight        predicts the future of a snapshot, event by event

Nothing here queries, reads a clock or keeps state: a ``Base`` provides the snapshot to start from,
which the run then changes, and the lookups for admission. ``Base`` itself is the empty world;
``scheduling.answers.questions`` makes the live one.
"""

from scheduling.simulation.document import Given, Simulation, read
from scheduling.simulation.headroom import Headroom, read_headroom, run_headroom
from scheduling.simulation.running import described_error, explain_table, refused, run
from scheduling.simulation.world import Base, World

__all__ = [
    "Base",
    "Given",
    "Headroom",
    "Simulation",
    "World",
    "described_error",
    "explain_table",
    "read",
    "read_headroom",
    "refused",
    "run",
    "run_headroom",
]
