"""Pods that wait for an event, grouped so that an event costs one call of a hint per group.

Pods of a class that the same plugins rejected are one group, since the same events help them. A
group that an event woke takes no more pods, and its pods leave one by one (``next_woken``).
"""

from collections import Counter, OrderedDict, deque
from collections.abc import Hashable, Mapping, Sequence
from enum import IntEnum

from clusterstate.objects.values.pod import Pod
from scheduling.engine.queue.pending import Entry
from scheduling.framework.events import EVERY_EVENT, ClusterEvent, Registration, subjects_of

Registrations = Mapping[str, Mapping[str, Sequence[Registration]]]
"""Events by scheduler name and plugin; every event may help against a plugin not named here."""

_Hearing = tuple[str, frozenset[str], frozenset[str]]
"""Scheduler name, plugins that rejected, plugins that keep pending."""
_Key = tuple[int, str, frozenset[str], frozenset[str]]
"""A class, and then as in ``_Hearing``."""


class Worth(IntEnum):
    """The effect of an event on a waiting pod."""

    NOTHING = 0
    AFTER_BACKOFF = 1
    NOW = 2


class Group:
    """Waiting pods on which each event has the same effect.

    ``worth``: the effect of the event that woke them. ``woken_by``: its label. ``subjects``: of
    their own (``framework.events.subjects_of``).
    """

    __slots__ = ("key", "pod_ids", "spec", "subjects", "woken_by", "worth")

    def __init__(self, key: _Key, spec: Pod) -> None:
        self.key = key
        self.spec = spec
        self.subjects = subjects_of(spec)
        # In order of arrival: the oldest leave first. Finding a plain dict's oldest key is slow.
        self.pod_ids: OrderedDict[int, None] = OrderedDict()
        self.worth = Worth.NOTHING
        self.woken_by = ""


class WaitingPods:
    """Pods in the stages UNSCHEDULABLE and GATED; runs hints of the plugins that rejected them."""

    def __init__(self, registrations: Registrations) -> None:
        self._registrations = registrations
        self._groups: dict[_Key, Group] = {}
        self._hearings: Counter[_Hearing] = Counter()
        self._by_subject: dict[Hashable, dict[_Key, Group]] = {}
        self._group_of: dict[int, Group] = {}
        self._woken: deque[Group] = deque()
        self._heard: dict[tuple[object, ...], tuple[bool, bool]] = {}  # see ``_hears``

    def __bool__(self) -> bool:
        return bool(self._groups)

    def __contains__(self, pod_id: int) -> bool:
        return pod_id in self._group_of

    def add(self, entry: Entry) -> None:
        """Add a pod; hints of the plugins that rejected it then judge events."""
        pod = entry.pod
        scheduler = pod.spec.spec.scheduler_name
        key = pod.class_id, scheduler, entry.rejected_by, entry.pending_by
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group(key, pod.spec)
            self._hearings[key[1:]] += 1
            for subject in group.subjects:
                self._by_subject.setdefault(subject, {})[key] = group
        group.pod_ids[pod.pod_id] = None
        self._group_of[pod.pod_id] = group

    def remove(self, pod_id: int) -> None:
        """Remove a pod that waits.

        Raises:
            KeyError: it does not wait.
        """
        group = self._group_of.pop(pod_id)
        del group.pod_ids[pod_id]
        if not group.pod_ids and self._groups.get(group.key) is group:
            self._drop(group)

    def _drop(self, group: Group) -> None:
        """Take a group off the list of those that wait for an event."""
        del self._groups[group.key]
        hearing = group.key[1:]
        self._hearings[hearing] -= 1
        if not self._hearings[hearing]:
            del self._hearings[hearing]
        for subject in group.subjects:
            alike = self._by_subject[subject]
            del alike[group.key]
            if not alike:
                del self._by_subject[subject]

    def wake(self, event: ClusterEvent) -> list[Group]:
        """Mark the groups that the event may help as woken, and return them."""
        for group in self._woken:
            if group.worth is not Worth.NOW and group.key[3]:
                group.worth = max(group.worth, self._worth_for(group, event))
        woken: list[Group] = []
        subject = event.subject
        heard = {one: self._hears(one, event) for one in self._hearings}
        groups = self._groups
        if subject is not None and not any(all_events for all_events, _ in heard.values()):
            groups = self._by_subject.get(subject, {})
        for key, group in list(groups.items()):
            all_events, own = heard[key[1:]]
            if not all_events and not (own and (subject is None or subject in group.subjects)):
                continue
            worth = self._worth_for(group, event)
            if worth is Worth.NOTHING:
                continue
            self._drop(group)
            group.worth = worth
            group.woken_by = event.label
            woken.append(group)
        self._woken.extend(woken)
        return woken

    def next_woken(self) -> tuple[int, Group] | None:
        """Return a woken pod that has not left yet, and its group; None if there is none."""
        while self._woken:
            group = self._woken[0]
            if group.pod_ids:
                return next(iter(group.pod_ids)), group
            self._woken.popleft()
        return None

    def worth(
        self,
        spec: Pod,
        rejected_by: frozenset[str],
        pending_by: frozenset[str],
        event: ClusterEvent,
    ) -> Worth:
        """Return the effect of an event, from hints of the plugins that rejected the pod.

        Rule: ``isPodWorthRequeuing``.
        """
        highest = event.at_most_priority
        if highest is not None and (spec.spec.priority or 0) > highest:
            return Worth.NOTHING
        by_plugin = self._registrations.get(spec.spec.scheduler_name, {})
        # Plugins that answered Pending first: one of them is enough, and skips the backoff.
        for plugins, worth in (
            (pending_by, Worth.NOW),
            (rejected_by - pending_by, Worth.AFTER_BACKOFF),
        ):
            for plugin in plugins:
                for registration in by_plugin.get(plugin, EVERY_EVENT):
                    if registration.covers(event) and registration.says_yes(spec, event):
                        return worth
        return Worth.NOTHING

    def _worth_for(self, group: Group, event: ClusterEvent) -> Worth:
        _, _, rejected_by, pending_by = group.key
        return self.worth(group.spec, rejected_by, pending_by, event)

    def _hears(self, hearing: _Hearing, event: ClusterEvent) -> tuple[bool, bool]:
        """Return whether a plugin that rejected a pod registered such events, without their hints.

        The second value: whether one registered such events about the pod's own ``subjects``.
        """
        name, rejected_by, pending_by = hearing
        key_of_event = *hearing, event.resource, event.action
        found = self._heard.get(key_of_event)
        if found is None:
            by_plugin = self._registrations.get(name, {})
            covering = [
                registration.own
                for plugin in rejected_by | pending_by
                for registration in by_plugin.get(plugin, EVERY_EVENT)
                if registration.covers(event)
            ]
            found = self._heard[key_of_event] = not all(covering), any(covering)
        return found
