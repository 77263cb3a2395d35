"""The arguments of ``rows.examine``: tuples of arrays, their columns, and its result codes.

Importing this loads no Numba.
"""

from typing import NamedTuple

import numpy as np

from scheduling.framework.arrays import Float64, Int16, Int32, Int64, Mask

# Kinds of steps, the filters of a profile in their order.
STATIC = 0
"""Depends on the node alone; states the number of a rejection for each row."""
FIT = 1
"""Compares the requested amounts, and the number of pods, with what is free."""
COUNT = 2
"""Rejects rows where a counter is above 0."""
AFFINITY = 3
"""Required terms of InterPodAffinity: rejection 1 affinity, 2 anti-affinity, 3 of placed pods."""
SPREAD = 4
"""Hard constraints of PodTopologySpread: rejection 1 skew, 2 missing label."""
# Kinds of terms in an AFFINITY step.
NEAR = 0
ANTI = 1
EXISTING = 2

# Columns of ``Terms.columns``.
OFFSET = 0
KIND = 1
MAX_SKEW = 2
MATCHES_SELF = 3
LOWEST = 4
"""Lowest count of a domain."""
AT_LOWEST = 5
"""How many domains have it."""
SECOND = 6
"""Lowest count above it."""
TOTAL = 7
FROM_ZERO = 8
LIVE_ONLY = 9
"""Whether terminating pods do not count."""
TERM_COLUMNS = 10

STEP_BITS = 32
NO_VICTIMS = -1
"""Code of a row that has no pod of lower priority."""
NO_NEED = -2
"""Code of a row that fits the pod without preemption."""
MOST_CODES = 512

ALL_ROWS = -1
"""As ``wanted`` of ``examine``: judge all rows as they are, also after one that passes."""

FEASIBLE = 1
"""Why ``examine`` stopped: a row fits (diagnosis only)."""
TOO_MANY = 2
"""There are more different rejections than there is room for."""


class Nodes(NamedTuple):
    """Columns of the snapshot by row."""

    allocatable: Int64
    requested: Int64
    allowed_pods: Int64
    pod_count: Int64


class PlacedPods(NamedTuple):
    """Pods on nodes: a linked list for each row (-1 ends it, newest first), and columns by slot."""

    first: Int32
    following: Int32
    kind: Int32
    started: Float64
    terminating: Mask
    order: Int64


class Classes(NamedTuple):
    """Columns by class: priority, peer (how its pods look to other pods' rules), requests."""

    priority: Int64
    peer: Int32
    requests: Int64


class NominatedPods(NamedTuple):
    """Nominated pods: a linked list for each row, and the class of each pod."""

    first: Int32
    following: Int32
    kind: Int32


class Rules(NamedTuple):
    """The filters of a profile for one class.

    ``steps`` int64 (steps, 3): kind, then the line of ``static``, or the first term and one after
    the last. ``static`` int16 (lines, rows): 0 passes, else the number of a rejection. ``amounts``
    and ``columns`` int64 (checks,): how much must be free of which resource.
    """

    steps: Int64
    static: Int16
    amounts: Int64
    columns: Int64


class Terms(NamedTuple):
    """Counts of pods that filters look at.

    ``columns`` int64 (terms, TERM_COLUMNS). ``domain`` int32 (terms, rows): position of the row's
    count in ``counts``, from OFFSET on; -1 without the label. ``counted`` bool (terms, rows):
    whether pods on the row count. ``seat`` and ``take`` int64 (peers, terms): what a pod that is
    nominated to a row adds to the count, and what a victim removes from it.
    """

    columns: Int64
    counts: Int64
    domain: Int32
    counted: Mask
    seat: Int64
    take: Int64


class Budgets(NamedTuple):
    """PodDisruptionBudgets and the pods that they guard.

    ``allowed`` int64 (budgets,): disruptions that each allows; the budgets of class c are
    ``which[first[c]:first[c + 1]]``. ``spared`` int64, sorted: pods that a budget does not count
    because they are already being disrupted, each as slot * number of budgets + budget.
    """

    first: Int64
    which: Int32
    allowed: Int64
    spared: Int64


class Verdicts(NamedTuple):
    """Output arrays that state why rows reject.

    ``verdict`` int32 (rows,): 0 where the row passes or was not looked at, else one more than the
    position of its code in ``codes`` int64 (MOST_CODES,). ``counts``: how many rows have each code.
    """

    verdict: Int32
    codes: Int64
    counts: Int64


class Room(NamedTuple):
    """Output arrays of ``examine``, and its working space.

    By candidate: ``position`` among the rows, where its victims ``end`` in ``victims`` (slots, most
    important first), and how many ``violations`` of budgets these cause. By pod of a row: ``lower``
    and ``turn``. By budget: ``left``, as ``Budgets.allowed``. By amount: ``used`` and ``to_come``.
    By term: ``gone_weight`` and ``to_come_weight``.
    """

    position: Int64
    end: Int64
    violations: Int64
    victims: Int32
    lower: Int32
    turn: Int32
    left: Int64
    used: Int64
    to_come: Int64
    gone_weight: Int64
    to_come_weight: Int64


def room_to_work(budgets: int, candidates: int, pods: int, checks: int, terms: int) -> Room:
    """Return output and working arrays for this many budgets, candidates, victims and terms.

    ``pods``: the most pods that may be victims; ``checks``: amounts.
    """
    return Room(
        position=np.empty(candidates, np.int64),
        end=np.empty(candidates, np.int64),
        violations=np.empty(candidates, np.int64),
        victims=np.empty(pods, np.int32),
        lower=np.empty(pods, np.int32),
        turn=np.empty(pods, np.int32),
        left=np.empty(budgets, np.int64),
        used=np.empty(checks, np.int64),
        to_come=np.empty(checks, np.int64),
        gone_weight=np.empty(terms, np.int64),
        to_come_weight=np.empty(terms, np.int64),
    )


class Examination(NamedTuple):
    """The result of ``examine``.

    ``why``: 0 if all requested rows were looked at, else FEASIBLE or TOO_MANY. ``kinds``: number of
    codes in use. ``candidates``: how many candidates ``room`` describes. ``best``: the candidate
    that costs least, -1 without any.
    """

    why: int
    kinds: int
    candidates: int
    best: int
    room: Room
