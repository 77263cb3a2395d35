"""Compiles classes of pods: to a sheet of the nodes, a program about other pods, and a request.

A class that cannot be compiled takes the reference path: if a plugin reads more than its aspect
(``framework.interface.Aspected``) or its terms (``framework.terms``) state, or if amounts, rules or
groups exceed the loop's arrays.
"""

import struct
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from clusterstate.objects.values.pod import Pod
from scheduling.engine.fast.lane_profile import Profile
from scheduling.engine.fast.lines import Lines
from scheduling.engine.fast.programs import Program, Programs
from scheduling.engine.fast.requests import Requests
from scheduling.engine.fast.sheets import Sheet, Sheets
from scheduling.engine.fast.statements import FILTERING, Alike, ClassStatements
from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.requirements import from_pod
from scheduling.framework.arrays import Mask
from scheduling.framework.interface import CycleState, Plugin
from scheduling.framework.node_table import Rows
from scheduling.framework.terms import ColumnFilter, ColumnRequest
from scheduling.framework.types import PodInfo

_MOST_HELD: Final = 256
_number: Final = struct.Struct("q")
AskedColumns = tuple[ColumnFilter, ColumnRequest]


class CompiledClass:
    """The compiled form of a class. ``sheet`` ``None``: the reference path decides for its pods.

    ``stamp`` and ``peer_stamp``: the versions of the snapshot for which it is valid.

    ``asked``: filters that look at columns of devices or volumes, each with its request; ``key``
    includes these amounts.

    ``pinned``: only one node can take its pods; ``key`` then begins with that node's row.

    ``key``: identifies the class's line, as bytes of int64 numbers: the sheet's number, cpu and
    memory with defaults, amounts that must be free, their resource columns, the requests by column,
    and what NodeResourcesFit and balance score.
    """

    __slots__ = ("asked", "key", "peer_stamp", "pinned", "program", "sheet", "stamp")

    def __init__(self, stamp: tuple[int, ...], peer_stamp: int) -> None:
        self.stamp = stamp
        self.peer_stamp = peer_stamp
        self.sheet: Sheet | None = None
        self.program: Program | None = None
        self.pinned = False
        self.asked: Sequence[AskedColumns] = ()
        self.key = b""

    @property
    def line_key(self) -> bytes:
        """The key of the class's line; the program's number makes that of a private line unique."""
        program = self.program
        if program is None or not program.private:
            return self.key
        return self.key + program.number.to_bytes(8, "little")


class _OfOneForm(NamedTuple):
    """Like classes, their common aspects and sheet: arguments of ``make_of_one_form``."""

    alike: Alike
    aspects: tuple[Hashable, ...]
    sheet: Sheet
    shut_first: bool


class Compiler:
    """Compiles the classes of one profile over one snapshot.

    Args:
        snapshot: the cluster.
        profile: the profile.
        sheets: the cache of sheets.
        programs: the cache of programs.
        lines: gives the widths of the keys.
        versions: returns the versions for which a compiled class is valid.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        profile: Profile,
        sheets: Sheets,
        programs: Programs,
        lines: Lines,
        versions: Callable[[], tuple[int, ...]],
    ) -> None:
        self._snapshot = snapshot
        self._profile = profile
        self._sheets = sheets
        self._programs = programs
        self._versions = versions
        self._requests = Requests(snapshot, profile, lines)
        self._held: dict[Hashable, Mask] = {}
        self.nodes_changed()

    def nodes_changed(self) -> None:
        """Drop the cached rows that can take each class, and update the number of nodes."""
        self._held.clear()
        self.pin_sheet = Sheet(-1, None)
        self.pin_sheet.absent = self._snapshot.node_count - 1

    def compile(self, info: PodInfo, stamp: tuple[int, ...]) -> CompiledClass:
        """Return the compiled form of a class.

        ``stamp``: the versions for which the result is valid, unless compiling itself changes them
        (a new resource or label becomes known).

        Raises:
            PluginFailed: a plugin failed.
        """
        snapshot, profile = self._snapshot, self._profile
        made = CompiledClass(stamp, snapshot.peer_stamp(info))
        aspects = []
        wanting: list[Plugin] = []
        for plugin in profile.aspected:
            aspect = plugin.aspect(info, snapshot)
            if aspect is None:
                if plugin.name not in profile.termed:
                    return made
                wanting.append(plugin)
            aspects.append(aspect)
        if profile.by_class:
            aspects.append(info.digest)
        request = self._requests.of(info, aspects)
        if request is None or profile.counts_too_soon(aspects):
            return made
        made.asked = self._asked(info, aspects)
        if made.asked:
            if self._too_late(made.asked, wanting):
                return made
            request = self._requests.with_columns(request, [asked for _, asked in made.asked])
            if request is None:
                return made
        if info.node_affinity_key and snapshot.node_count > 1:
            row = self._only_row(info, aspects, profile.in_order(wanting))
            if row is not None:
                made.pinned, made.sheet = True, self.pin_sheet
                made.stamp = self._versions()
                made.key = _number.pack(row) + request
                return made
        if not wanting:
            made.sheet = self._sheets.of(info, tuple(aspects))
        if made.sheet is None:
            stated = self._programs.state(info, profile.in_order(wanting))
            if stated is None:
                return made
            sheet = self._sheets.of(info, tuple(aspects), stated.keys)
            if sheet is None or sheet.keyed == 0 or self._too_late(made.asked, (), sheet):
                return made
            shut_first = profile.shuts_first(sheet.shut, wanting)
            if shut_first is None:
                return made
            made.program = self._programs.make(info, stated, sheet, shut_first=shut_first)
            if made.program is None:
                return made
            made.sheet = sheet
        # Making the sheet may have changed versions; the result holds for the new ones too.
        made.stamp = self._versions()
        made.key = _number.pack(made.sheet.number) + request
        return made

    def compile_alike(
        self, infos: Sequence[PodInfo], stamp: tuple[int, ...]
    ) -> Iterator[tuple[PodInfo, CompiledClass]]:
        """Compile together, and yield, the classes that are like classes compiled before.

        They differ from the earlier ones in amounts, in the pods that their terms count, and in
        fields that no plugin reads. The caller compiles the other ``infos`` with ``compile``, one
        by one.

        Raises:
            PluginFailed: a plugin failed.
        """
        snapshot, profile, sheets = self._snapshot, self._profile, self._sheets
        # Only one node may be able to take classes that name nodes; ``compile`` finds that out for
        # each.
        infos = [info for info in infos if not info.node_affinity_key]
        if profile.by_class or not infos:
            return
        said = [[plugin.aspect(info, snapshot) for info in infos] for plugin in profile.aspected]
        if stamp != self._versions():
            return  # a new resource or label became known: begin again
        alike: list[PodInfo] = []
        aspects: list[tuple[Hashable, ...]] = []
        numbers: list[int] = []
        with_terms: list[tuple[PodInfo, ClassStatements, Sheet, bool]] = []
        aspects_with_terms: list[tuple[Hashable, ...]] = []
        of_one_form: dict[Hashable, _OfOneForm] = {}
        for info, of in zip(infos, zip(*said, strict=True), strict=False):
            if None in of:
                wanting = self._wanting(of)
                counted = self._programs.alike(info, wanting)
                group = None if counted is None else of_one_form.get((of, counted[0]))
                if group is not None and counted is not None:
                    group.alike.infos.append(info)
                    group.alike.counters.append(counted[1])
                    continue
                stated = self._stated_alike(info, of, wanting)
                if stated is None:
                    continue
                if counted is not None:
                    alone = Alike(stated=stated[1], infos=[info], counters=[counted[1]])
                    of_one_form[of, counted[0]] = _OfOneForm(alone, of, *stated[2:])
                    continue
                with_terms.append(stated)
                aspects_with_terms.append(of)
                continue
            sheet = sheets.known(of)
            if sheet is not None:
                alike.append(info)
                aspects.append(of)
                numbers.append(sheet.number)
            elif (stated := self._stated_alike(info, of, [])) is not None:
                with_terms.append(stated)
                aspects_with_terms.append(of)
        without_terms = len(alike)
        programs: list[Program | None] = [None] * without_terms
        if stamp == self._versions():
            alike += [info for info, _, _, _ in with_terms]
            aspects += aspects_with_terms
            numbers += [sheet.number for _, _, sheet, _ in with_terms]
            programs += self._programs.make_alike(with_terms)
            for group in of_one_form.values():
                count = len(group.alike.infos)
                alike += group.alike.infos
                aspects += [group.aspects] * count
                numbers += [group.sheet.number] * count
                programs += self._programs.make_of_one_form(
                    group.alike, group.sheet, shut_first=group.shut_first
                )
        sheet_of = np.array(numbers, np.int64)
        too_late: dict[tuple[tuple[Hashable, ...], int], bool] = {}
        for places, requests in self._requests.of_many(alike, aspects):
            written = np.concatenate((sheet_of[places, None], requests), axis=1)
            keys, width = written.tobytes(), written.itemsize * written.shape[1]
            for at, place in enumerate(places):
                info, program = alike[place], programs[place]
                if program is None and (None in aspects[place] or place >= without_terms):
                    continue
                made = CompiledClass(stamp, snapshot.peer_stamp(info))
                made.sheet, made.program = sheets.sheets[numbers[place]], program
                made.key = keys[at * width : (at + 1) * width]
                made.asked = self._asked(info, aspects[place])
                if made.asked:
                    first = _number.size
                    amounts = [asked for _, asked in made.asked]
                    request = self._requests.with_columns(made.key[first:], amounts)
                    like = aspects[place], numbers[place]
                    if like not in too_late:
                        wanting = self._wanting(aspects[place])
                        too_late[like] = self._too_late(made.asked, wanting, made.sheet)
                    if request is None or too_late[like]:
                        continue
                    made.key = made.key[:first] + request
                yield info, made

    def _asked(self, info: PodInfo, aspects: Sequence[Hashable]) -> Sequence[AskedColumns]:
        """Return the filters that request columns for a class, in order, with their requests."""
        found: list[AskedColumns] = []
        for at, plugin in self._profile.counting:
            if aspects[at] != () and aspects[at] is not None:
                asked = plugin.column_request(info, self._snapshot)
                if asked is not None:
                    found.append((plugin, asked))
        return found

    def _too_late(
        self, asked: Sequence[AskedColumns], others: Sequence[Plugin], sheet: Sheet | None = None
    ) -> bool:
        """Return whether a filter that reads columns comes after one of the ``others``.

        The loop reports rejections by filters that read columns first, whatever the order.
        """
        names = [plugin.name for plugin in others]
        if sheet is not None:
            names += [status.plugin for status in sheet.shut]
        return self._profile.counts_too_late([plugin for plugin, _ in asked], names)

    def _wanting(self, aspects: tuple[Hashable, ...]) -> list[Plugin]:
        """Return the plugins whose aspect is ``None``: no key covers all that they read."""
        asked = zip(self._profile.aspected, aspects, strict=True)
        return [plugin for plugin, aspect in asked if aspect is None]

    def _stated_alike(
        self, info: PodInfo, aspects: tuple[Hashable, ...], wanting: list[Plugin]
    ) -> tuple[PodInfo, ClassStatements, Sheet, bool] | None:
        """Return the arguments of ``Programs.make_alike`` for a class.

        ``None``: no earlier class is like it.

        Raises:
            PluginFailed: a plugin failed.
        """
        profile = self._profile
        if not all(plugin.name in profile.termed for plugin in wanting):
            return None
        stated = self._programs.state(info, profile.in_order(wanting))
        if stated is None or stated.private:
            return None
        sheet = self._sheets.known(aspects, stated.keys)
        if sheet is None or sheet.keyed == 0:
            return None
        shut_first = profile.shuts_first(sheet.shut, wanting)
        return None if shut_first is None else (info, stated, sheet, shut_first)

    def _only_row(
        self, info: PodInfo, aspects: Sequence[Hashable], wanting: Sequence[Plugin]
    ) -> int | None:
        """Return the only row that can take the class's pods, by the rules about nodes.

        ``None`` if there are several or none, or if rules about other pods may reject it.

        Raises:
            PluginFailed: a plugin failed.
        """
        row, holds = self._named_row(info, aspects)
        if row is None:
            state = CycleState()
            begun = self._profile.framework.pre_filter(state, info, self._snapshot)
            if not begun.status.ok or len(begun.rows) != 1:
                return None
            row, holds = int(begun.rows[0]), len(self._judge(state, info, begun.rows)) > 0
        if not holds:
            return None
        if wanting:
            stated = self._programs.state(info, wanting)
            if stated is None or stated.counter is not None:
                return None
            if any(term.kind in FILTERING for term in stated.terms):
                return None
        return row

    def _judge(self, state: CycleState, info: PodInfo, rows: Rows) -> Rows:
        """Return the rows that pass all filters about nodes alone."""
        framework = self._profile.framework
        left: Rows = framework.filter_some(
            self._profile.static, state, info, self._snapshot, rows
        ).feasible
        return left

    def _named_row(self, info: PodInfo, aspects: Sequence[Hashable]) -> tuple[int | None, bool]:
        """Return the row of the node that a class names, and whether the node can take the pods.

        ``None`` if it names none, or several. Pods that differ only in this name, such as those of
        a DaemonSet, are filtered together, once on all rows, as one pod without the name.

        Raises:
            PluginFailed: a plugin failed.
        """
        for place, plugin in self._profile.naming:
            named = plugin.named_node(info)
            row = None if named is None else self._snapshot.row_of(named[0])
            if named is None or row is None:
                continue
            others = (place, named[1], *aspects[:place], *aspects[place + 1 :])
            held = self._held.get(others)
            if held is None:
                if len(self._held) >= _MOST_HELD:
                    self._held.clear()
                held = self._held[others] = self._held_by(info, plugin.without_name(info))
            if len(held):
                return row, held.item(row)
        return None, False

    def _held_by(self, info: PodInfo, pod: Pod) -> Mask:
        """Return a mask (rows,): the rows that could take a class if it named no node.

        All False if PreFilter rejects the class.
        """
        snapshot, state = self._snapshot, CycleState()
        rest = from_pod(pod, info.digest)
        rest.index, rest.peer, rest.amounts = info.index, info.peer, info.amounts
        begun = self._profile.framework.pre_filter(state, rest, snapshot)
        if not begun.status.ok:
            return np.zeros(0, np.bool_)
        held = np.zeros(snapshot.capacity, np.bool_)
        held[self._judge(state, rest, begun.rows)] = True
        return held
