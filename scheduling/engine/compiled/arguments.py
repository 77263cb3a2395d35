"""The arguments of the compiled loops: tuples of arrays. Importing this loads no Numba."""

from typing import NamedTuple

import numpy as np

from scheduling.engine.compiled.layout import BLOCK, DYNAMIC, EXCEPTIONS, KEPT, TOGETHER
from scheduling.framework.arrays import Float64, Int16, Int32, Int64, Mask, UInt64


class Nodes(NamedTuple):
    """Columns of the snapshot."""

    allocatable: Int64
    requested: Int64
    nonzero_requested: Int64
    allowed_pods: Int64
    pod_count: Int64


class NominatedAmounts(NamedTuple):
    """The requests and the number of pods nominated to each row."""

    requested: Int64
    pods: Int64


class ScoreColumns(NamedTuple):
    """The columns of nodes that scoring needs, in blocks of rows.

    ``odd``: rows that vectors cannot score, see ``scoring``; ``odd_in``: how many in a block.

    ``by_rows``: the profile scores more than cpu and memory by what is free; all rows are odd then.
    ``strategy`` and ``table``: see ``framework.terms.Strategy``. ``rank``: if ties go to the first
    name, the place of each row's name in the order of names; else empty.
    """

    fields: Float64
    odd: Mask
    odd_in: Int32
    by_rows: bool
    strategy: int
    table: Int64
    rank: Int32


class Lines(NamedTuple):
    """See ``engine.fast.lines.Lines``."""

    total: Int32
    bits: Int32
    highest: Int32
    tied: Int32
    kinds: Int32
    feasible: Int64
    cursor: Int64
    amounts: Int64
    columns: Int64
    more: Mask
    terms: Float64
    weights: Int32
    scored: Int64
    vectors: Int64
    nonzero: Int64
    base_of: Int32
    mask_of: UInt64
    sheet_of: Int32
    witness: Int32
    anew: Mask
    group: Int16
    group_size: Int32
    entries: Int32
    entry_group: Int16
    entry_top: Int32
    entry_ties: Int32
    widest: Int32
    dense: Int32


class Sheets(NamedTuple):
    """See ``engine.fast.sheets.Sheets``."""

    bases: Int32
    group: Int16
    group_count: Int32
    hint: Int32
    open_rows: Int64
    keyed: Int32


class Programs(NamedTuple):
    """The rules about other pods, by class; see ``engine.fast.programs.Programs``.

    By pod of the run: ``of_pod`` is the program of its class, -1 for none; ``who`` is the position
    of its class among the run's classes, and the index into ``first_mark`` and ``last_mark``.
    """

    of_pod: Int32
    who: Int32
    exceptions: Int32
    row: Int32
    sheet: Int64
    raw: Int64
    shut: Int32
    full: Mask
    room: Int32
    private: Mask
    watch: Int64
    taken: Int32
    members: Int32
    first_mark: Int64
    last_mark: Int64
    mark_program: Int32
    mark_watch: Int32
    mark_weight: Int64


class Counts(NamedTuple):
    """Counts of pods, and which classes count in them; see ``counter_columns.CounterColumns``."""

    counters: Int64
    counts: Int64
    present: Mask
    where: Int32
    first_bump: Int64
    last_bump: Int64
    bump_counter: Int32
    bump_weight: Int64
    logarithms: Float64


class Terms(NamedTuple):
    """The terms by which the groups of each program are judged and scored.

    ``form`` (programs, FORM); ``rules`` (programs, rules, RULE); ``place`` (programs, rules,
    bases): the label's value, -1 for none; ``values`` (programs, groups, watches); ``base``
    (programs, groups); ``size`` (programs, groups): how many rows are feasible. ``counters`` and
    ``counts``: see ``Counts``. Numba passes a tuple field by field, so a tuple with more fields
    would cost more time than the terms themselves.
    """

    form: Int64
    rules: Int64
    place: Int32
    values: Int64
    base: Int32
    size: Int32
    counters: Int64
    counts: Int64


class Pins(NamedTuple):
    """Pods that only one node can take.

    ``of_pod``: the index of a pod's entry in the other arrays, -1 for none. ``row``: the node.
    ``amounts`` and ``columns``: what must be free, by resource column. ``vectors`` and ``nonzero``:
    what is added to the row's sums when the pod is placed.
    """

    of_pod: Int32
    row: Int64
    amounts: Int64
    columns: Int64
    vectors: Int64
    nonzero: Int64


class Work(NamedTuple):
    """Working arrays of the loop, which allocates none itself.

    By unit (``programs``): ``active``, ``offset``, ``found``, ``weighted`` (plugins, units),
    ``ignored``. By label value: ``seen``. By rule: ``weights``. By block: ``summits`` and ``ties``,
    the highest total and its number of rows; ``patch_of``, the index in ``patches`` (.., BLOCK),
    which has the totals of blocks with excepted rows; ``patched`` lists these blocks. ``best``: the
    highest totals. ``block``: the totals of one block. ``lines``: those that are scored together.
    """

    active: Int32
    offset: Int32
    found: Int64
    weighted: Int32
    ignored: Mask
    seen: Int64
    weights: Float64
    best: Int32
    summits: Int32
    ties: Int32
    patch_of: Int32
    patches: Int32
    patched: Int32
    block: Int32
    lines: Int32


def room_to_work(*, units: int, rules: int, values: int, blocks: int) -> Work:
    """Return working arrays for this many units, rules, label values and blocks of rows.

    ``values``: the most values of any label that a program counts by.
    """
    return Work(
        active=np.zeros(units, np.int32),
        offset=np.zeros(units, np.int32),
        found=np.zeros(units, np.int64),
        weighted=np.zeros((DYNAMIC, units), np.int32),
        ignored=np.zeros(units, np.bool_),
        seen=np.zeros(values, np.int64),
        weights=np.zeros(rules, np.float64),
        best=np.zeros(KEPT, np.int32),
        summits=np.zeros(blocks, np.int32),
        ties=np.zeros(blocks, np.int32),
        patch_of=np.zeros(blocks, np.int32),
        patches=np.zeros((EXCEPTIONS, BLOCK), np.int32),
        patched=np.zeros(EXCEPTIONS, np.int32),
        block=np.zeros(BLOCK, np.int32),
        lines=np.zeros(TOGETHER, np.int32),
    )


class Results(NamedTuple):
    """The decisions of the loop for each pod; see ``engine.fast.run.Run``."""

    figures: Int32
    chosen: Int32
    scores: Int32
    kinds: Int32
    masks: UInt64
    refused: Int32
    term_scores: Int32
