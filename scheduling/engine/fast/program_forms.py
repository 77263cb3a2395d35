"""The part that programs share if their classes have like terms under one sheet.

Hundreds of Deployments behind Services differ in their counters alone; writing a form takes 40 us,
copying one 8. ``engine.fast.programs`` copies it into the arrays of the loop.
"""

from collections.abc import Hashable, Sequence
from typing import Any

import msgspec
import numpy as np

from scheduling.engine.compiled import layout
from scheduling.engine.compiled.layout import DYNAMIC
from scheduling.engine.fast.sheets import Sheet
from scheduling.engine.fast.statements import ClassStatements, Statements
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.arrays import Int32, Int64
from scheduling.framework.interface import CycleState, Plugin, Score
from scheduling.framework.runtime import Framework
from scheduling.framework.status import Status
from scheduling.framework.terms import Kind, ScaledScore, Term
from scheduling.framework.types import PodInfo


class LabelAssumptions(msgspec.Struct, frozen=True):
    """What a term assumes about the nodes' labels.

    ``single``: no two nodes share a value; ``everywhere``: all nodes have one; ``from_zero``: there
    are fewer domains than a hard constraint asks for.
    """

    term: Term
    single: bool
    everywhere: bool
    from_zero: bool


class Form(msgspec.Struct, kw_only=True, eq=False):
    """The part of a program that classes with like terms share: numbers by rule, group and plugin.

    ``scored``: how many plugins score by group. ``number``: the sheet's. ``holds``: whether the
    assumptions in ``supposed`` are still true.
    """

    number: int

    names: tuple[str, ...]
    sources: list[int]
    refusals: list[Status]
    scored: int
    form: Int64
    rules: Int64
    place: Int32
    sheet: Int64
    raw: Int64
    base: Int64
    supposed: list[LabelAssumptions]
    holds: bool = True


class Forms:
    """Caches the forms of one profile and snapshot while their assumptions about nodes hold."""

    def __init__(
        self, snapshot: Snapshot, framework: Framework | None, statements: Statements
    ) -> None:
        self._snapshot = snapshot
        self._framework: Any = framework
        self._statements = statements
        self._scaled = {
            plugin.name: plugin.scaled_in_reverse
            for plugin in (() if framework is None else framework.score_plugins)
            if isinstance(plugin, ScaledScore)
        }
        self._forms: dict[Hashable, Form] = {}

    def of(
        self,
        info: PodInfo,
        stated: ClassStatements,
        sheet: Sheet,
        watch_of: Sequence[int],
        *,
        shut_first: bool,
    ) -> Form | None:
        """Return the form for a class, shared by classes with like terms; ``None``: no space."""
        rules = [
            (
                term.kind, 0, watch, term.matches_self, term.max_skew, term.from_zero,
                term.by_size, term.all_keys,
            )
            for term, watch in zip(stated.terms, watch_of, strict=True)
        ]  # fmt: skip
        key = (
            sheet.number, shut_first, stated.affinity_first, tuple(stated.scoring), tuple(rules),
            tuple([_looked_at(term) for term in stated.terms]),
        )  # fmt: skip
        form = self._forms.get(key)
        if form is None:
            form = self._forms[key] = self._make(info, stated, sheet, rules, shut_first=shut_first)
        return form if form.scored <= DYNAMIC else None

    def _make(
        self,
        info: PodInfo,
        stated: ClassStatements,
        sheet: Sheet,
        rules: Sequence[tuple[int, ...]],
        *,
        shut_first: bool,
    ) -> Form:
        framework = self._framework
        names: list[str] = []
        sources: list[int] = []
        dynamic: list[tuple[Score, int]] = []
        lines = dict(zip(sheet.names, sheet.lines, strict=True))
        for plugin in framework.score_plugins:
            line = lines.get(plugin.name)
            if line is None and plugin.name not in stated.scoring:
                continue
            names.append(plugin.name)
            if line is None or line < 0:
                dynamic.append((plugin, framework.weights[plugin.name]))
                line = -len(dynamic)
            sources.append(line)
        bases = sheet.keyed
        form = np.zeros(layout.FORM, np.int64)
        form[layout.GROUPS] = bases
        form[layout.RULES], form[layout.PLUGINS] = len(rules), len(dynamic)
        form[layout.AFFINITY_FIRST] = stated.affinity_first
        form[layout.SHUT_FIRST] = shut_first
        place = np.zeros((len(rules), bases), np.int32)
        for at, (term, rule) in enumerate(zip(stated.terms, rules, strict=True)):
            rows = sheet.group_rows
            ids = np.where(rows >= 0, term.table.column.ids[rows], -1)
            place[at] = np.minimum(ids, 0) if rule[layout.WATCH] >= 0 else ids
        sourced = np.zeros((len(dynamic), 3), np.int64)
        raw = np.zeros((len(dynamic), bases), np.int64)
        for at, (plugin, weight) in enumerate(dynamic):
            sourced[at] = (self._source(plugin), 0, weight)
            if plugin.name in self._scaled:
                raw[at] = self._raw(plugin, info, sheet)
        refusals = stated.refusals.copy()
        refusals[layout.SHUT : layout.SHUT + len(sheet.shut)] = sheet.shut
        return Form(
            number=sheet.number,
            names=tuple(names),
            sources=sources,
            refusals=refusals,
            scored=len(dynamic),
            form=form,
            rules=np.array(rules, np.int64).reshape(-1, layout.RULE),
            place=place,
            sheet=sourced,
            raw=raw,
            base=np.arange(bases),
            supposed=[self._supposed(term) for term in stated.terms],
        )

    def nodes_changed(self, sheets: Sequence[Sheet]) -> None:
        """Drop the forms whose assumptions no longer hold; ``sheets``: by number."""
        version = self._snapshot.node_version
        for key, form in list(self._forms.items()):
            for one in form.supposed:
                one.term.table.follow(version)
            if any(self._supposed(one.term) != one for one in form.supposed):
                form.holds = False
            if not (form.holds and sheets[form.number].holds):
                del self._forms[key]

    def _supposed(self, term: Term) -> LabelAssumptions:
        """Return what a term assumes about the nodes' labels now."""
        snapshot, column = self._snapshot, term.table.column
        version = snapshot.node_version
        everywhere = column.everywhere(snapshot.rows(), version)
        return LabelAssumptions(term, column.single(version), everywhere, term.from_zero)

    def _source(self, plugin: Plugin) -> int:
        """Return the code of the source of a plugin's scores (``compiled.layout``)."""
        if plugin.name in self._scaled:
            return layout.REVERSED if self._scaled[plugin.name] else layout.SCALED
        return layout.AFFINITY if self._statements.is_affinity(plugin.name) else layout.SPREAD

    def _raw(self, plugin: Score, info: PodInfo, sheet: Sheet) -> Int64:
        """Return a plugin's scores of a sheet's groups, before normalisation, int64 (groups,)."""
        raw = sheet.raw.get(plugin.name)
        if raw is None:
            is_open = (sheet.shut_groups == 0) & (sheet.group_rows >= 0)
            raw = sheet.raw[plugin.name] = np.zeros(len(is_open), np.int64)
            rows = sheet.group_rows[is_open]
            scored = self._framework.score_one(plugin, CycleState(), info, self._snapshot, rows)
            raw[is_open] = scored[0]
        return raw


def _looked_at(term: Term) -> Hashable:
    """Return a key of the label by which a term counts; for HARD also of nodes and minDomains."""
    if term.kind is Kind.HARD:
        return term.table.column.key, term.table.eligible_key, term.min_domains
    return term.table.column.key
