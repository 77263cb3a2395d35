"""The scheduling cycle: read changes, decide a batch, write it; and the state that it keeps.

    cycle   read whether another configuration is in force            (profiles)
            refresh the mirror from the log            (mirror)
            check pods that a client put on a node     (arrival_checks)
            read what plugins and clients did with reserved pods           (reservations)
            pop a batch from the queue                 (engine.queue)
            decide it, assuming each decision          (engine.cycle)
            write: reserve, bind in a thread, refuse   (reservations, binder)

``worker.loop`` calls ``Scheduler.cycle`` again and again. Nothing in it waits for Redis.
"""

import math
import time
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby, islice
from typing import cast

import msgspec
import structlog

from clusterstate.actions.loops import progress
from clusterstate.actions.pods.bind import Binding, OtherSchedulers, forget_batches
from clusterstate.actions.scheduler import leases, scheduler_configuration
from clusterstate.database import locks, sql
from clusterstate.health import heartbeats
from clusterstate.objects.rules.footprint import Footprint
from clusterstate.objects.values.errors import StatusError
from clusterstate.objects.values.pod_group import GroupKey
from clusterstate.processes import collector, shards
from clusterstate.queries.pods.queue import placed_by_clients, untried
from scheduling.engine import deciding
from scheduling.engine.deciding import Decider
from scheduling.engine.groups import (
    GroupDecision,
    refused_after,
    runs,
    schedule_group,
    with_members,
)
from scheduling.engine.queue.pending import Backoff, PendingPod, by_profile
from scheduling.engine.queue.plugins import QueuePlugins
from scheduling.engine.reference.cycle import (
    Options,
    PodToPlace,
    assume_or_nominate,
    new_state,
    of_share,
    schedule_batch,
    schedule_pod,
)
from scheduling.engine.reference.decision import Decision, Decisions
from scheduling.engine.snapshot import reliance
from scheduling.framework.configuration import KubeSchedulerConfiguration, Profile
from scheduling.framework.events import Registration
from scheduling.framework.footprints import footprint_of
from scheduling.framework.outcomes import PluginFailed
from scheduling.framework.runtime import ConfigurationError, Framework
from scheduling.framework.status import Code
from scheduling.framework.types import PodInfo
from scheduling.plugins.catalogue import build_framework
from scheduling.plugins.held_profile import held_profile, why_held
from scheduling.plugins.queueing_hints import registrations
from scheduling.worker import (
    arrival_checks,
    failed_batches,
    measuring,
    profiles,
    reservations,
)
from scheduling.worker.binder import CONTENDED, Binder
from scheduling.worker.division import Division
from scheduling.worker.failed_batches import BatchSize
from scheduling.worker.groups import Groups
from scheduling.worker.guard import Guard
from scheduling.worker.mirror import Mirror
from scheduling.worker.reservations import Reservations
from scheduling.worker.reserved_pod import ReservedPod
from scheduling.worker.stored_pods import StoredPods

logger = structlog.get_logger(__name__)

NAME = shards.loop(shards.FIRST)
"""The loop's name in heartbeats and in its row of progress."""
BATCH = 1000
"""The most pods per batch: large enough for PostgreSQL, small enough for a short cycle."""
BATCH_WITHOUT_LOOPS = 100
"""The most pods per batch while loops are being compiled: a pod then takes 100 times as long."""
LOAD_SECONDS = 600.0
"""Seconds that the first load or compilation may take on a slow machine."""
CYCLE_SECONDS = 120.0
"""Seconds that one batch may take: a worker that takes longer counts as hung."""
LOOK_EVERY = 1.0
"""Seconds between two checks for another configuration."""
DIVIDE_EVERY = 0.25
"""Seconds between two checks of which other schedulers work."""
_IDLE = 1.0
"""Seconds without a pod after which a scheduler takes slots, and that others' pods wait first."""
_LOOKED_AT = 5000
"""The most pods of other schedulers that it looks at for that."""
_LONGEST_TURN = 0.2
"""The most seconds that a scheduler waits for its turn."""
_IN_TURN = 32
"""The most pods that a scheduler decides in its turn."""
_SHARE_EVERY = 5.0
"""Seconds between two counts of the pods of the largest component, and deletions of old rows."""
_batch_size = BatchSize(BATCH)
_RECORDED_AT_ONCE = 2 * BATCH
"""The most decisions recorded with each batch, if very many are not recorded yet."""
_MOST_FOOTPRINTS = 100_000
_SLOW = 1.0
"""Seconds after which a plugin's call is logged as slow: all pods waited for it."""
_SLOW_AGAIN = 60.0
"""Seconds until the same plugin is logged as slow again."""


class SlowPlugins(measuring.PluginMeter):
    """Measures plugins' calls, and logs slow ones."""

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        took: Callable[[str, str, float], None] = lambda plugin, point, seconds: None,
    ) -> None:
        super().__init__(clock)
        self._took = took
        self._told: dict[tuple[str, str], float] = {}
        self.reports_as = NAME

    def note(self, plugin: str, point: str, code: Code, seconds: float) -> None:
        """Log a call that took long, at most once a minute for each plugin and point.

        Writes a heartbeat, too: a batch may call a plugin once for every node.
        """
        heartbeats.beat(NAME, CYCLE_SECONDS)
        progress.step(self.reports_as)
        super().note(plugin, point, code, seconds)
        self._took(plugin, point, seconds)
        if seconds < _SLOW:
            return
        now = self.clock()
        if now - self._told.get((plugin, point), -_SLOW_AGAIN) >= _SLOW_AGAIN:
            self._told[plugin, point] = now
            logger.warning("plugin_slow", plugin=plugin, point=point, seconds=round(seconds, 3))


class _Profiles:
    """The profiles of one configuration, with their plugins, and what the queue reads of them.

    A profile that cannot be built gets a plugin that rejects its pods (``holds``); ``problems``
    states why, by profile name.
    """

    def __init__(
        self,
        configuration: KubeSchedulerConfiguration,
        make: Callable[[Profile], Framework],
        *,
        holds: bool = False,
    ) -> None:
        self.frameworks: dict[str, Framework] = {}
        self.of_groups: dict[str, Framework] = {}
        self.events: dict[str, Mapping[str, Sequence[Registration]]] = {}
        self.problems = profiles.problems(configuration)
        for profile in configuration.profiles:
            name = profile.scheduler_name
            try:
                framework, used = make(profile), profile
            except ConfigurationError as error:
                if not holds:
                    raise
                used = held_profile(name, str(error))
                framework = make(used)
                self.problems[name] = why_held(used)
                logger.error(  # noqa: TRY400  # the message is enough
                    "configuration_unusable", profile=name, error=str(error)
                )
            self.frameworks[name] = framework
            if framework.schedules_groups:
                self.of_groups[name] = framework
            self.events[name] = registrations(used, framework.events)
        self.backoff = Backoff.of(configuration)
        self.compatibility = configuration.compatibility


class Scheduler:
    """One worker's snapshot, queue, reservations and profiles; runs the scheduling cycle."""

    def __init__(
        self,
        configuration: KubeSchedulerConfiguration,
        seeds: Callable[[], int],
        *,
        revision: int = profiles.DEFAULT_REVISION,
        several: bool = False,
    ) -> None:
        self._seeds = seeds
        self.division = Division() if several else None
        """Which pods this scheduler decides; ``None`` if it works alone."""
        self._divided_at = -math.inf
        self._busy_at = 0.0
        self._shared_at = -math.inf
        self._revision = revision
        self._passed_over = revision
        self._looked_at = 0.0
        self._starts: dict[str, int] = {}
        self._deciders: dict[str, Decider] = {}
        self._footprints: dict[int, Footprint] = {}
        self._earlier: dict[tuple[int, str], Framework | None] = {}
        self._guard = Guard()
        self._meter = SlowPlugins(took=self._guard.took)
        self._judged = configuration
        self._profiles = _Profiles(configuration, self._make, holds=True)
        self._queue_plugins = QueuePlugins(
            self._profiles.frameworks,
            lambda class_id: self.mirror.info(class_id),  # noqa: PLW0108  # made below
            self._plugin_failed,
        )
        self.mirror = Mirror(
            self._profiles.events,
            self._profiles.backoff,
            sort_key=self._queue_plugins.sort_key,
            pre_enqueue=self._queue_plugins.held_by,
        )
        self._queue_plugins.lets_group_in = self.mirror.lets_group_in
        self._queue_plugins.holds_unclaimed = True
        self.mirror.configuration = self._revision
        self.mirror.compatibility = self._profiles.compatibility
        if self.division is not None:
            self.division.use(self._profiles.frameworks)
        self.binder = Binder(self.mirror, self._framework_of)
        self.binder.refused_some = self._guard.decided
        self.groups = Groups()
        self.binder.bound_some = self.groups.bound
        self.binder.took_back = self.groups.came_back
        self.binder.with_rules = self._with_rules
        self.reservations = Reservations(self.mirror, self.binder, self._framework_at)
        self._classes_of = weakref.ref(self.mirror.snapshot)

    def load(self, now: float, shard: int = shards.FIRST) -> None:
        """Build the warm state from the rows. The caller then calms the garbage collector."""
        self.mirror.load(now)
        self.begin(now, shard)

    def begin(self, now: float, shard: int = shards.FIRST) -> None:
        """Begin to work: load reservations, set failed objects aside, watch a canary configuration.

        The mirror must be up to date. ``shard``: this scheduler's number; the first one also does
        what only one scheduler may do.
        """
        self._forget_former_classes()
        self.binder.work_as(shard)
        self._meter.reports_as = shards.loop(shard)
        self._set_aside(now)
        if self.division is not None:
            self.division.begin(shard)
            self.mirror.is_mine, self.mirror.has_reserved = self._is_mine, self.is_first
            self._divide(now)
        # The scheduler before may have ended between a nomination and the victims' deletion.
        self.mirror.queue.activate(self.mirror.nominated(), now)
        every = any(
            one.gang_args.starting_node_seconds for one in self._profiles.of_groups.values()
        )
        self.groups.begin(self.mirror.queue, self.mirror.info, now, every=every)
        if self.is_first:
            self._tell_use()
            self._guard.begin(self._revision)
            self.reservations.load(now)

    # --- several schedulers ----------------------------------------------------------------------

    @property
    def is_first(self) -> bool:
        """Whether this scheduler has the first number, or is the only one."""
        return self.binder.shard == shards.FIRST

    def _seed(self) -> int:
        """Return the seed of a batch; if several schedulers work, their seeds differ."""
        seed = self._seeds()
        return seed if self.division is None else of_share(seed, *self.division.share)

    def _is_mine(self, info: PodInfo, class_id: int) -> bool:
        division = self.division
        return division is None or division.is_mine(info, class_id, self.mirror.snapshot)

    def _follow_division(self, now: float) -> None:
        """Divide pods among schedulers again if due, or if another's bind made a bind fail."""
        if self.division is None:
            return
        if not self.binder.was_overtaken and 0 <= now - self._divided_at < DIVIDE_EVERY:
            return
        self._divide(now)

    def _divide(self, now: float) -> None:
        division = cast("Division", self.division)
        self._divided_at, self.binder.was_overtaken = now, False
        if not self.is_first:
            self.mirror.follow_reservations()
        if division.look(self.mirror.compatibility):
            self.binder.finish_batch(now)
            left, came = self.mirror.divide(now)
            self.binder.refused.drop(self.mirror.elsewhere)
            logger.info(
                "pods_divided",
                scheduler=division.shard,
                at_work=sorted(division.at_work),
                silent=sorted(division.silent),
                reach=division.reach,
                left=left,
                came=came,
            )
        elif not self.mirror.take_from_others(now):
            self._take_slots(now)
        self.binder.beside = self._beside(division)

    def _beside(self, division: Division) -> OtherSchedulers:
        return OtherSchedulers(division.reach, division.shard, self.binder.recorder.begin())

    def _take_slots(self, now: float) -> None:
        """Take slots from another scheduler whose pods wait, if this one has had nothing to do.

        Queries up to twice.
        """
        mirror, division = self.mirror, cast("Division", self.division)
        if not mirror.elsewhere or 0 <= now - self._busy_at < _IDLE:
            return
        some = list(islice(mirror.elsewhere, _LOOKED_AT))
        self._busy_at = now  # look again after the same time
        found = division.to_take(
            [(mirror.elsewhere[one], mirror.info(mirror.elsewhere[one]))
             for one in untried(some, _IDLE)],
            mirror.snapshot,
        )  # fmt: skip
        if found:
            leases.take_slots(found, division.shard)
            logger.info("slots_taken", scheduler=division.shard, slots=found)
            self._divided_at = -math.inf

    @property
    def may_move_up(self) -> bool:
        """Whether the first scheduler is gone and this one may take its place."""
        division = self.division
        return division is not None and not self.is_first and shards.FIRST not in division.at_work

    def move_up(self, now: float) -> bool:
        """Become the first scheduler: decide the common pods, and do what only one scheduler does.

        Returns False, and does nothing, while the log lacks bindings that this scheduler wrote:
        decisions of the first scheduler must follow from the log and its own decisions alone.
        """
        self.binder.finish_batch(now)
        self.mirror.refresh(now)
        if self.mirror.snapshot.assumed_count > len(self.mirror.reserved):
            return False
        self.binder.recorder.record()
        self.mirror.take_over(now)
        self.begin(now)
        return True

    @property
    def is_configured(self) -> bool:
        """Whether this scheduler uses the configuration in force, or rejected it. Queries once."""
        return profiles.in_force()[0] in (self._revision, self._passed_over)

    # --- profiles --------------------------------------------------------------------------------

    def _make(self, profile: Profile) -> Framework:
        """Return a profile with its plugins built.

        Raises:
            ConfigurationError: a plugin cannot be built or lacks an extension point of the profile.
        """
        return build_framework(
            profile, waiting_pods=self, stored_pods=StoredPods(), meter=self._meter
        )

    # Plugins are made before ``reservations`` is, so the handle they get is this object.
    def all(self) -> Sequence[ReservedPod]:
        """Return the pods that wait on Permit (``handles.WaitingPods``)."""
        return self.reservations.all()

    def get(self, uid: str) -> ReservedPod | None:
        """Return the pod with this uid, ``None`` if it does not wait on Permit."""
        return self.reservations.get(uid)

    def _framework_of(self, name: str) -> Framework | None:
        """Return a profile of the configuration in use by its name, ``None`` if there is none."""
        return self._profiles.frameworks.get(name)

    def _framework_at(self, revision: int, name: str) -> Framework | None:
        """Return a profile of any revision by its name, ``None`` if it can no longer be used."""
        if revision == self._revision:
            is_held = name in self._profiles.problems
            return None if is_held else self._profiles.frameworks.get(name)
        key = revision, name
        if key not in self._earlier:
            self._earlier[key] = None
            try:
                profile = profiles.at(revision).profile(name)
                if profile is not None and not why_held(profile):
                    self._earlier[key] = self._make(profile)
            except (ConfigurationError, StatusError) as error:
                self._unusable(revision, error)
        return self._earlier[key]

    @staticmethod
    def _unusable(revision: int, error: Exception) -> None:
        logger.error("configuration_unusable", revision=revision, error=str(error))

    def _follow_configuration(self, now: float) -> None:
        """Use the stored configuration if it changed; reads it at most once a second."""
        if 0 <= now - self._looked_at < LOOK_EVERY:
            return
        self._looked_at = now
        self._guard.check(now)
        revision, configuration = profiles.in_force()
        if configuration == self._judged and revision in (self._revision, self._passed_over):
            return
        self._judged = configuration
        try:
            if revision != self._revision and (why := profiles.problems(configuration)):
                raise ConfigurationError("; ".join(why.values()))
            profiles_ = _Profiles(configuration, self._make)
        except ConfigurationError as error:
            self._unusable(revision, error)
            self._passed_over = revision
            if self.is_first:
                self._tell_use(revision, {"": str(error)})
                self._guard.unusable(revision, str(error), now)
            return
        self.binder.finish_batch(now)
        self.binder.let_go(now)
        self.reservations.follow(now)
        for name, framework in self._profiles.frameworks.items():
            self._earlier[self._revision, name] = framework
        self._revision, self._profiles = revision, profiles_
        self._queue_plugins.frameworks = profiles_.frameworks
        if self.division is not None:
            self.division.use(profiles_.frameworks)
        self._starts, self._deciders, self._footprints = {}, {}, {}
        if self.is_first:
            self._guard.begin(revision)
            self._tell_use()
        with sql.patience(LOAD_SECONDS):  # the whole queue is read again
            self.mirror.reconfigure(revision, profiles_.events, profiles_.backoff, now)
        self.mirror.compatibility = profiles_.compatibility  # ``_shed`` loads it anew if it differs
        if self.is_first:
            self.reservations.load(now)
        logger.info(
            "configuration_changed", revision=revision, profiles=list(self._profiles.frameworks)
        )

    def _tell_use(self, skipped: int | None = None, problems: dict[str, str] | None = None) -> None:
        """Write which configuration is in force, for ``status.inForce``. Queries once.

        ``skipped``: a revision that this scheduler cannot use, for the reasons in ``problems``.
        """
        scheduler_configuration.note_use(
            revision=self._revision,
            stored=self._revision if skipped is None else skipped,
            problems=self._profiles.problems if problems is None else problems,
            is_usable=len(self._profiles.problems) < len(self._profiles.frameworks),
        )

    def _forget_former_classes(self) -> None:
        """Forget classes by id if the mirror was loaded again: a restore gives ids other rows."""
        if self._classes_of() is self.mirror.snapshot:
            return
        self._classes_of, self._footprints = weakref.ref(self.mirror.snapshot), {}
        if self.division is not None:
            self.division.forget_classes()
            self._divided_at = -math.inf

    def _shed(self, now: float) -> None:
        """Load the mirror again if most of its classes belong to pods that are gone."""
        if not self.mirror.has_outgrown:
            return
        self.binder.finish_batch(now)
        self.binder.let_go(now)
        self.reservations.follow(now)
        self._deciders, self._footprints = {}, {}
        with sql.patience(LOAD_SECONDS):
            self.mirror.load(now)
        self.binder.begin_anew()
        self.groups.forget()
        if self.is_first:
            self.reservations.load(now)
        collector.calm()  # the old snapshot was frozen, and would stay for ever

    @staticmethod
    def _plugin_failed(failure: PluginFailed) -> None:
        logger.warning("plugin_failed", plugin=failure.status.plugin, error=str(failure))

    # --- the cycle -------------------------------------------------------------------------------

    def _decider(self, name: str) -> Decider:
        """Return the profile's decider over the current snapshot; a new one after a new load."""
        decider = self._deciders.get(name)
        if decider is None or decider.snapshot is not self.mirror.snapshot:
            framework = self._profiles.frameworks[name]
            decider = self._deciders[name] = Decider(self.mirror.snapshot, framework)
        return decider

    def cycle(self, now: float) -> int:
        """Read the log, decide and write one batch; return how many pods were decided.

        If there is no pod to decide, writes the refusals that earlier cycles left unwritten, and
        returns their number.
        """
        self._follow_configuration(now)
        self._shed(now)
        self._follow_division(now)
        self.mirror.refresh(now)
        with self._turn(now) as most:
            return self._decide_and_write(now, most)

    @contextmanager
    def _turn(self, now: float) -> Iterator[int]:
        """Work alone for a block if schedulers want the same nodes; yield the most pods to decide.

        If several schedulers decide at a time for the last free places, each chooses the best ones,
        and all but one in vain. So while binds fail for that, they read, decide and bind in turn.
        Nobody waits long for another one, and who calls slow plugins takes no turns.
        """
        binder, queue = self.binder, self.mirror.queue
        takes_turns = (
            self.division is not None
            and 0 < binder.contended_until - now <= 2 * CONTENDED  # more: the clock was set back
            and queue.has_ready
            and not (self.is_first and any(
                one.chooses_by_itself for one in self._profiles.frameworks.values()
            ))
        )  # fmt: skip
        if not takes_turns:
            yield BATCH if self.division is None else binder.at_once
            return
        binder.finish_batch(now)
        if not locks.take_within(locks.TURN, _LONGEST_TURN):
            binder.contended_until = -math.inf
            yield binder.at_once
            return
        try:
            self.mirror.refresh(now)
            yield _IN_TURN
            binder.finish_batch(now)
        finally:
            locks.give_back(locks.TURN)

    def _decide_and_write(self, now: float, most: int) -> int:
        self._judge_arrivals(now)
        self._forget_former_classes()
        if self.mirror.failed_objects:
            self._set_aside(now)
        ready = self.reservations.follow(now)
        if not deciding.is_quick():
            most = min(most, BATCH_WITHOUT_LOOPS)
        self.groups.hear(self.mirror.queue, now)
        self.groups.try_again(self.mirror.queue, now)
        batch = self.mirror.queue.pop_batch(now, min(_batch_size.limit, most))
        if self.division is not None:
            batch = self.mirror.hand_over(batch)
            self._busy_at = now if batch else self._busy_at
        if self.mirror.snapshot.groups:
            batch = with_members(batch, self.mirror.queue, self._profiles.of_groups)
        try:
            done = self._place(batch, ready, now)
            if _batch_size.is_reduced:
                self.binder.finish_batch(now)
        except Exception as error:
            _batch_size.failed(batch, error, now)
            raise
        _batch_size.succeeded(len(batch))
        if self.groups and (not batch or self.groups.is_due(now)):
            done += self.groups.write()
        if self.mirror.queue.incoming:
            measuring.came(self.mirror.queue.incoming)
        return done

    @property
    def needs_no_news(self) -> bool:
        """Whether the last cycle's own bindings need not be read from the log at once.

        False while pods wait, since a binding or the end of a victim may wake them, while a batch
        is being bound or pods are reserved, and while conditions of groups are not written.
        """
        queue, binder = self.mirror.queue, self.binder
        return not (
            queue.has_ready
            or queue.has_waiting
            or binder.is_binding
            or binder.has_leaning
            or binder.refused
            or self.reservations.count
            or self.groups
            or self.groups.is_searching
        )

    def _judge_arrivals(self, now: float) -> None:
        """Fail pods that clients put on nodes that cannot run them, and read these changes.

        All decisions of the cycle then include the changes: a pod that is refused now is not woken
        by them when a new scheduler, or a plan, reads the log again.
        """
        mirror, frameworks = self.mirror, self._profiles.frameworks
        if self.division is not None and mirror.arrivals:
            if not self.is_first:
                mirror.arrivals.clear()
                return
            mirror.arrivals = dict.fromkeys(placed_by_clients(list(mirror.arrivals)))
        if mirror.arrivals and arrival_checks.judge(mirror, frameworks, now):
            mirror.refresh(now)
            if mirror.arrivals:
                arrival_checks.judge(mirror, frameworks, now)

    def measure(self) -> None:
        """If this is the first scheduler, set the gauges of its snapshot and its division."""
        if not self.is_first:
            return
        snapshot = self.mirror.snapshot
        measuring.holds(snapshot.node_count, snapshot.placed_count, snapshot.assumed_count)
        if self.division is not None and not 0 <= self._divided_at - self._shared_at < _SHARE_EVERY:
            self._shared_at = self._divided_at
            measuring.connected(self.division.largest_share(snapshot))
            forget_batches()

    def _set_aside(self, now: float) -> None:
        found, self.mirror.failed_objects = self.mirror.failed_objects, []
        failed_batches.set_aside(found, now)

    def _place(self, batch: Sequence[PendingPod], ready: list[Binding], now: float) -> int:
        """Decide a batch and write it; return how many pods are written or being written."""
        if not batch and not ready and not self.binder.has_leaning:
            self._give_up_broken(now)
            self.binder.submit((), now)
            self.binder.refuse((), now)
            return self.binder.write_refused(now)
        began = time.perf_counter()
        snapshot = self.mirror.snapshot
        leaning = self._leaning(batch)
        footprints = {pod.pod_id: self._footprint(pod) for pod in batch}
        decisions = self._decide(batch, now)
        self._count_divided(batch)
        measuring.decided(len(batch), time.perf_counter() - began)
        recorder = self.binder.recorder
        recorder.note(decisions, snapshot, profile_revision=self._revision, now=now)
        placed = [
            Binding(
                cast(int, key),
                node_name,
                footprints[cast(int, key)],
                leans=key in leaning,
            )
            for key, node_name in decisions.placed()
            if key not in self.reservations
        ]
        refused = decisions.unplaced()
        ready += self.reservations.write(now)
        if snapshot.groups:
            ready = self.groups.gather([*ready, *placed], leaning=bool(leaning))
            placed = []
            self._give_up_broken(now)
        going = self.binder.submit(placed, now, ready, began=began)
        self.binder.refuse(refused, now, configuration=self._revision, began=began)
        self.binder.write_refused(now)
        if recorder.full:
            recorder.record(_RECORDED_AT_ONCE)
        return len(batch) + len(ready) or going

    def _give_up_broken(self, now: float) -> None:
        self.binder.give_up(self.groups.broken(self.mirror.snapshot.is_assumed), now)

    def _footprint(self, pod: PendingPod) -> Footprint:
        """Return what pods of the class use and depend on (``Footprint``), cached by class."""
        found = self._footprints.get(pod.class_id)
        if found is None:
            if len(self._footprints) >= _MOST_FOOTPRINTS:
                self._footprints.clear()
            framework = self._profiles.frameworks[pod.spec.spec.scheduler_name]
            info = self.mirror.info(pod.class_id)
            found = footprint_of(info, framework, self.mirror.snapshot)
            self._footprints[pod.class_id] = found
        return found

    def _with_rules(
        self, bindings: Sequence[Binding]
    ) -> tuple[OtherSchedulers | None, list[Binding]]:
        """Read rules about other pods, and add their counters to bindings (``Binder``)."""
        division, snapshot = self.division, self.mirror.snapshot
        if division is None:
            return None, list(bindings)
        division.learn(self.mirror.compatibility)
        found = []
        for one in bindings:
            info = self.mirror.info(one.footprint.class_id) if one.footprint else None
            if (record := snapshot.pod(one.pod_id)) is not None:
                info = record.info
            counters = () if info is None else division.counters(info, snapshot)
            found.append(msgspec.structs.replace(one, counters=counters) if counters else one)
        return self._beside(division), found

    def _count_divided(self, batch: Sequence[PendingPod]) -> None:
        division = self.division
        if division is None or not batch:
            return
        counts = Counter(pod.class_id for pod in batch)
        common = sum(
            count
            for class_id, count in counts.items()
            if division.counters(self.mirror.info(class_id), self.mirror.snapshot)
        )
        measuring.divided(division.shard, common, len(batch) - common)

    def _leaning(self, batch: Sequence[PendingPod]) -> Collection[int]:
        """Return the ids of pods whose decisions may depend on other pods of the batch."""
        if self.reservations.count or self.binder.has_leaning or self._reserves(batch):
            self.binder.take_turns(batch)
        snapshot = self.mirror.snapshot
        classes = {pod.class_id: pod for pod in batch}
        leaning = {
            class_id
            for class_id, pod in classes.items()
            if reliance.leans(
                self._profiles.frameworks[pod.spec.spec.scheduler_name],
                self.mirror.info(class_id),
                snapshot,
            )
        }
        return {pod.pod_id for pod in batch if pod.class_id in leaning} if leaning else ()

    def _reserves(self, batch: Sequence[PendingPod]) -> bool:
        """Return whether some pod may be reserved: a profile reserves all, or one of the batch."""
        frameworks = self._profiles.frameworks
        return any(framework.decides_alone for framework in frameworks.values()) or any(
            frameworks[pod.spec.spec.scheduler_name].concerns(
                self.mirror.info(pod.class_id), self.mirror.snapshot
            )
            for pod in {pod.class_id: pod for pod in batch}.values()
        )

    def _decide(self, batch: Sequence[PendingPod], now: float) -> Decisions:
        decisions = Decisions()
        snapshot = self.mirror.snapshot
        together = self._profiles.of_groups if snapshot.groups else {}
        for key, run_of in runs(batch, together) if together else [(None, batch)]:
            if key is None:
                self._decide_singly(run_of, decisions, now)
            else:
                self._decide_group(key, run_of, decisions, now)
        return decisions

    def _decide_group(
        self, key: GroupKey, pods: Sequence[PendingPod], into: Decisions, now: float
    ) -> None:
        """Decide the pods of a group together, and note whether they are to be bound together."""
        name = pods[0].spec.spec.scheduler_name
        snapshot = self.mirror.snapshot
        framework = self._profiles.frameworks[name]
        places, options = [self._to_place(pod) for pod in pods], Options(seed=self._seed())
        decision = schedule_group(
            snapshot, framework, key, places, options,
            start=self._starts.get(name, 0), decider=self._decider(name),
            assigned=self.groups.assigned(key), now=now,
        )  # fmt: skip
        if decision.placed:
            decision = self._reserve_group(framework, places, decision, options, now)
        else:
            self.groups.search(snapshot, framework, places, decision)
        self.groups.note(decision, now)
        into.extend(decision.decisions)

    def _reserve_group(
        self,
        framework: Framework,
        pods: Sequence[PodToPlace],
        decision: GroupDecision,
        options: Options,
        now: float,
    ) -> GroupDecision:
        """Run Reserve and Permit for the pods of a placed group that need them.

        If one pod is refused, none of the group is placed.
        """
        snapshot, found = self.mirror.snapshot, list(decision.decisions)
        for number, (pod, one) in enumerate(zip(pods, found, strict=True)):
            if not one.scheduled or not (
                framework.decides_alone or framework.concerns(pod.info, snapshot)
            ):
                continue
            state = new_state(pod, options, number)
            reservations.names([state])
            found[number] = self.reservations.begin(framework, self._revision, pod, state, one, now)
            if found[number].scheduled:
                continue
            for other in decision.decisions:
                if cast(int, other.key) in self.reservations:
                    self.reservations.cancel(cast(int, other.key))
                elif other.scheduled:
                    snapshot.forget(other.key)
            return refused_after(decision, pods, found[number])
        return msgspec.structs.replace(decision, decisions=found)

    def _to_place(self, pod: PendingPod) -> PodToPlace:
        nominated = self.mirror.snapshot.nominated_node_of(pod.pod_id)
        return PodToPlace(pod.pod_id, self.mirror.info(pod.class_id), nominated)

    def _decide_singly(self, batch: Sequence[PendingPod], into: Decisions, now: float) -> None:
        snapshot = self.mirror.snapshot
        for name, pods in by_profile(batch):
            framework = self._profiles.frameworks[name]
            places = [self._to_place(pod) for pod in pods]
            options = Options(seed=self._seed())
            draw = 0
            for alone, run in self._runs(framework, places):
                if alone:
                    into.extend(self._reserve_each(framework, run, options, now, draw=draw))
                else:
                    decisions = schedule_batch(
                        snapshot,
                        framework,
                        run,
                        options,
                        start=self._starts.get(name, 0),
                        draw=draw,
                        decider=self._decider(name),
                    )
                    for part in decisions.parts:
                        into.extend(part)
                draw += len(run)
                self._starts[name] = into.next_start

    def _runs(
        self, framework: Framework, pods: Sequence[PodToPlace]
    ) -> Iterator[tuple[bool, Sequence[PodToPlace]]]:
        """Yield runs of successive pods, as (whether each pod is reserved alone, pods)."""
        snapshot = self.mirror.snapshot
        if framework.decides_alone:
            yield True, pods
            return
        alone = {
            pod.info: framework.concerns(pod.info, snapshot)
            for pod in {pod.info: pod for pod in pods}.values()
        }
        if not any(alone.values()):
            yield False, pods
            return
        for apart, run in groupby(pods, lambda pod: alone[pod.info]):
            yield apart, list(run)

    def _reserve_each(
        self,
        framework: Framework,
        pods: Sequence[PodToPlace],
        options: Options,
        now: float,
        *,
        draw: int,
    ) -> list[Decision]:
        """Decide pods one by one, each with Reserve and Permit before the next (R150).

        Plugins of other packages that filter or score are called for each pod, since they may keep
        notes. If Reserve only records what the snapshot assumed for the pod, it refuses none, and
        all pods are decided first.
        """
        snapshot = self.mirror.snapshot
        decider = None if framework.chooses_by_itself else self._decider(framework.scheduler_name)
        states = [new_state(pod, options, number) for number, pod in enumerate(pods, draw)]
        reservations.names(states)
        framework.prepare([pod.info for pod in pods], snapshot)
        snapshot.gives_devices = framework.gives_devices
        decisions: list[Decision] = []
        start = self._starts.get(framework.scheduler_name, 0)
        if decider is not None and framework.only_notes:
            batch = schedule_batch(
                snapshot, framework, pods, options, draw=draw, start=start, decider=decider
            )
            return [
                self.reservations.begin(framework, self._revision, pod, state, decision, now)
                if decision.scheduled
                else decision
                for pod, state, decision in zip(pods, states, batch, strict=True)
            ]
        for number, (pod, state) in enumerate(zip(pods, states, strict=True), draw):
            if decider is None:
                decision = schedule_pod(
                    snapshot, framework, pod, options, draw=number, start=start, state=state
                )
                assume_or_nominate(snapshot, pod, decision)
            else:
                (decision,) = schedule_batch(
                    snapshot, framework, [pod], options, draw=number, start=start, decider=decider
                )
            start = decision.next_start
            if decision.scheduled:
                decision = self.reservations.begin(
                    framework, self._revision, pod, state, decision, now
                )
            decisions.append(decision)
        return decisions
