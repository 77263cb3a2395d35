"""What ends, is cut off or is killed while the service works, and what that must not do.

Two kinds of tests lie here: those that kill one part and look (`test_*.py`), and the fault machine,
built like Jepsen, which `make soak` runs for as long as wanted::

    __main__   arguments, lives one after another, reports, shrinking
    living     one life: rounds of faults, a heal, a rest in which everything is judged
    schedule   faults by seed          shrink     the shortest schedule that still fails
    system     the service, its processes, who restarts them    proxy, clock   what lies between
    nemeses    who does harm           hostile    clients that do    starving   short of processors
    world      nodes and pods          clients    users, an agent     watchers   those who watch
    wire       HTTP and JSON           history    what clients did and were told
    probe      easy pods all the time
    asked      what the advisor and the console answer
    replay     events into states      arithmetic, rules   Kubernetes' words, worked out again
    claims     devices and volumes held twice, or by nobody
    groups     a round of kills while gangs are placed, displaced and evicted
    checkers   what must not happen    tables     what they read from PostgreSQL
    report     the table

The checkers share no code with the service. What they find is kept with its schedule in the folder
that ``--output`` names; ``--replay FILE`` lives it again.
"""

import pytest

MARKS = [
    pytest.mark.db,
    pytest.mark.slow,
    pytest.mark.real_clock,
    pytest.mark.timeout(600),
]
