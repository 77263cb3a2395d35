"""Which budget, brake or rate holds back each step of an operation, so that none is tried in vain.

A disruption budget, a brake, the rate of a zone or of the operation, or a place that is not held
yet may refuse a step: it is the step's *gate*. A refused step is not tried again while its gate is
*shut*: a budget until it has another revision, a brake while it holds, a rate or a place for half a
second. Then the steps of the gate are tried one after the other, until the gate refuses one again.

This is only a cache of refusals: in another process, or after a restart, each step is tried once.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from clusterstate.actions import brakes
from clusterstate.actions.brakes import EvictionHeld, EvictionPaced
from clusterstate.objects.rules.disruption import BudgetRefuses
from clusterstate.objects.values.errors import TooManyRequests
from clusterstate.processes import memory
from clusterstate.queries.evictions.brakes import NAMESPACE, OWNER, ZONE, held_back
from scheduling.controllers.held_places import OperationPaced, PlaceNotHeld, PlacesFull

RATE_PAUSE: Final = timedelta(seconds=0.5)
OTHER_PAUSE: Final = timedelta(seconds=5)
ASKED_EVERY: Final = timedelta(seconds=20)
"""How often evictions that brakes hold are requested again: before a brake forgets the request."""

_BUDGET, _BRAKE, _RATE, _OTHER = range(4)
Gate = tuple[int, str, str]
"""The kind of the gate, its namespace and its name."""
Revisions = Callable[[Sequence[tuple[str, str]]], Mapping[tuple[str, str], int]]
"""Returns the revisions of the budgets that there are, by namespace and name."""


class HeldSteps:
    """The held steps of one operation: the gate of each, and which gates are shut."""

    def __init__(self) -> None:
        self._gates: dict[int, Gate] = {}
        self._shut: dict[Gate, int | datetime] = {}
        """The revision of a budget that refused; else when a gate may be open again."""
        self._braked: dict[int, str] = {}
        """The uids of the pods that a brake holds, by step."""
        self._asked_at: datetime | None = None

    def waits(self, number: int) -> bool:
        """Return whether a step's gate is shut, so that it would be refused again."""
        return self._gates.get(number) in self._shut

    def done(self, number: int) -> None:
        """Note that a step was not refused."""
        self._gates.pop(number, None)
        self._braked.pop(number, None)

    def forget(self) -> None:
        """Let every step be tried."""
        self._gates.clear()
        self._shut.clear()
        self._braked.clear()

    def refused(
        self, number: int, pod_uid: str, refusal: TooManyRequests, *, now: datetime
    ) -> None:
        """Note the controller or budget that refused a step."""
        self.done(number)
        if isinstance(refusal, BudgetRefuses):
            gate: Gate = (_BUDGET, refusal.namespace, refusal.name)
            self._shut[gate] = refusal.revision
        elif isinstance(refusal, EvictionHeld):
            gate = (_BRAKE, "", refusal.share.key)
            self._shut[gate] = now
            self._braked[number] = pod_uid
        elif isinstance(refusal, EvictionPaced):
            gate = (_RATE, "", refusal.zone)
            self._shut[gate] = now + RATE_PAUSE
        elif isinstance(refusal, PlacesFull):
            gate = (_OTHER, "", "places")
            self._shut[gate] = now + RATE_PAUSE
        elif isinstance(refusal, OperationPaced):
            gate = (_OTHER, "", "pace")
            self._shut[gate] = refusal.until
        else:
            gate = (_OTHER, "", str(number))
            pause = RATE_PAUSE if isinstance(refusal, PlaceNotHeld) else OTHER_PAUSE
            self._shut[gate] = now + pause
        self._gates[number] = gate

    def look(self, now: datetime, *, revisions: Revisions) -> None:
        """Open the gates that may accept a step now. Queries up to three times.

        Requests the evictions that brakes hold once more: otherwise the brakes would expire after a
        minute, before an operator could approve them.
        """
        budgets = [gate for gate in self._shut if gate[0] == _BUDGET]
        if budgets:
            found = revisions([(namespace, name) for _, namespace, name in budgets])
            for gate in budgets:
                if found.get(gate[1:]) != self._shut[gate]:
                    del self._shut[gate]
        if any(gate[0] == _BRAKE for gate in self._shut):
            self._look_at_brakes(now)
        for gate, until in list(self._shut.items()):
            if gate[0] in (_RATE, _OTHER) and isinstance(until, datetime) and until <= now:
                del self._shut[gate]

    def _look_at_brakes(self, now: datetime) -> None:
        held = held_back(now)
        scopes = ((ZONE, held.zones), (NAMESPACE, held.namespaces), (OWNER, held.owners))
        holding = {f"{scope}.{name}" for scope, names in scopes for name in names}
        for gate in [gate for gate in self._shut if gate[0] == _BRAKE]:
            if gate[2] not in holding:
                del self._shut[gate]
        if self._asked_at is None or now >= self._asked_at + ASKED_EVERY:
            self._asked_at = now
            brakes.ask_on(
                [uid for number, uid in self._braked.items() if self.waits(number)], now=now
            )


_known: dict[int, HeldSteps] = {}
memory.when_replaced(_known.clear)


def of_operation(plan_id: int) -> HeldSteps:
    """Return the held steps of an operation, none at first."""
    return _known.setdefault(plan_id, HeldSteps())


def forget_others(plan_ids: Collection[int]) -> None:
    """Forget every operation that is not among these."""
    for plan_id in [one for one in _known if one not in plan_ids]:
        _known.pop(plan_id, None)
