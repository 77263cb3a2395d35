"""Simulations: a document in, results out. The live cycle's own core, and no state is touched.

A ``Simulation`` states a world (empty, or the live one with changes) and pods to place in it::

    document.read    document -> Simulation, or Invalid with every wrong field
    world            the base with the document's objects; what admission looks up
    preparing        a pod of the document, checked, admitted, filed under its class
    claims           what controllers and bindings do about claims of volumes and devices
    leaving          what follows from a pod's leaving for another one
    running.run      Simulation and Base -> the answer, with ``status.results``: one result per pod
    headroom, room   how many more of a pod fit, and what stops the next one; all at once
    verdicts         every filter on every node, also behind the first that rejects it
    explanation      the funnel, the scores, why one node won; ``causes``: the RuntimeClass's part
    remedies         what would let a pod in: ``needs`` of the nodes -> ``edits``, each proved
    shortages        what the claims of a pod lack, and who holds it
    makings          volumes and slices of devices to make for such a pod
    groups           waiting pods by what stands in their way
    gangs            what a PodGroup lacks; how many more gangs of a shape fit
    gang_remedies    what would let a PodGroup in
    node_advice      which nodes to add for the pods that wait
    node_exchange    which nodes to remove, and which to add in their place: several choices
    node_advice_document  the question about both, read, and the answer
    packing          all pods looked at together, with what the best possible is at most
    making_room      which pods must go elsewhere so that a waiting one finds room
    checks           whether what a plugin says about itself is true, for tests of plugins
    plan_document    a ``Plan``: changes that are asked about; plan_undo: what takes them back
    cluster          a cluster in virtual time: the live queue, hints and batches
    foresight        the future of a snapshot, from moment to moment

Nothing here queries, reads a clock or keeps anything: a ``Base`` gives the snapshot to start from,
which then belongs to the run, and the lookups of admission. ``Base`` itself is the empty world; the
live one is made by ``scheduling.answers.questions``.
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
