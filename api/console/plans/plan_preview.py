"""A plan's prediction and its progress, for templates.

Every fact is the plan's. Amounts get their units, seconds become times, titles become links, and
differences of two plans become sentences.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from api.console.page import formatting
from api.forms.cells import parse_time
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.quantity import QuantityError, milli_value, value
from clusterstate.queries.objects import decode_object
from clusterstate.queries.pods import find_pods
from clusterstate.queries.scheduler.plans import (
    DROPPED,
    HAS_FAILED,
    HELD,
    IS_DONE,
    TO_DO,
    StoredPlan,
)

MOST_ROWS: Final = 500
_MOST_STEPS: Final = 200
_NEVER: Final = "never"
_STATES: Final = {
    TO_DO: "to do", IS_DONE: "done", HELD: "held back", HAS_FAILED: "failed", DROPPED: "dropped",
}  # fmt: skip
_FIRST: Final = ("open", "pods", "cpu", "memory")
_ROOM: Final = {
    "open": "nodes",
    "pods": "pods",
    "cpu": "CPU",
    "ephemeral-storage": "disk",
}


class LeavingPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that leaves: when (None: not predicted), why, and where its replacement lands.

    ``seconds``: from now; ``grace``: seconds to terminate after that. ``lands``: a node; if empty,
    ``nowhere`` says why. ``step``: the state of the operation's step for it, if it has one.
    """

    title: str
    namespace: str
    name: str
    node: str
    asks: str
    rule: str
    at: datetime | None
    seconds: float
    grace: float
    held_by: str
    preempted_by: str
    again: bool
    lands: str
    why: str
    nowhere: str
    step: str


class Room(msgspec.Struct, frozen=True):
    """How much of a resource the open nodes have left, before and after."""

    name: str
    before: str
    after: str
    less: bool


def leaving(plan: StoredPlan, status: Manifest, part: str = "leaving") -> list[LeavingPod]:
    """Return the pods that leave, those with a problem first. Queries once."""
    entries: list[Manifest] = (status.get(part) or [])[:MOST_ROWS]
    keys = [_key(one["pod"]) for one in entries]
    named = [key for key in keys if key is not None]
    asks = dict(zip(named, map(_asks, find_pods(named)), strict=True)) if named else {}
    states = _states(plan)
    found = [_leaving(one, key, asks, states) for one, key in zip(entries, keys, strict=True)]
    return sorted(found, key=lambda one: not (one.held_by or one.nowhere))


def _key(title: str) -> tuple[str, str] | None:
    """Return namespace and name, None for a pod that has no name yet."""
    namespace, _, name = title.partition("/")
    return None if name.startswith("(") else (namespace, name)


def _states(plan: StoredPlan) -> dict[str, str]:
    if plan.applied_at is None:
        return {}
    steps = zip(plan.to_do(), plan.progress, strict=True)
    return {step["subject"]: _STATES[state] for step, state in steps}


def _leaving(
    one: Manifest,
    key: tuple[str, str] | None,
    asks: Mapping[tuple[str, str], str],
    states: Mapping[str, str],
) -> LeavingPod:
    landing: Manifest = one.get("landing") or {}
    at = one.get("at")
    seconds = one.get("afterSeconds") or 0.0
    return LeavingPod(
        title=one["pod"],
        namespace=key[0] if key else "",
        name=key[1] if key else "",
        node=one.get("nodeName") or "",
        asks=asks.get(key, "") if key else "",
        rule=one.get("rule") or one.get("cause") or "",
        at=parse_time(at) if at else None,
        seconds=seconds,
        grace=max((one.get("goneAfterSeconds") or seconds) - seconds, 0.0),
        held_by=one.get("blockedBy") or "",
        preempted_by=one.get("preemptedBy") or "",
        again=one.get("replaced") != _NEVER,
        lands=landing.get("nodeName") or "",
        why=why_there(landing),
        nowhere=landing.get("message") or "",
        step=states.get(f"pod {one['pod']}", ""),
    )


def _asks(text: bytes | None) -> str:
    if text is None:
        return ""
    requests = formatting.requests_of(decode_object(text))
    shown = [f"{formatting.amount('cpu', requests['cpu'])} CPU"] if requests.get("cpu") else []
    shown += [formatting.amount(name, requests[name]) for name in ("memory",) if requests.get(name)]
    others = ("cpu", "memory", "ephemeral-storage", "pods")
    shown += [f"{amount} {name}" for name, amount in requests.items() if name not in others]
    return ", ".join(shown)


def why_there(landing: Manifest) -> str:
    """Return why a pod lands on its node: how many nodes fit, and its lead over the next one."""
    if not landing.get("nodeName") or "feasible" not in landing:
        return ""
    feasible, evaluated = landing["feasible"], landing["evaluated"]
    if feasible == 1:
        return f"the only node that fits, of {evaluated} evaluated"
    text = f"best of {feasible} nodes that fit"
    if landing.get("ties", 0) > 1:
        return f"{text}, at random among {landing['ties']} equally good"
    if landing.get("margin"):
        return f"{text}, {landing['margin']} points more than the next best"
    return text


def room(status: Manifest) -> list[Room]:
    """Return the free amounts of open nodes, before and after, the usual resources first."""
    both: Manifest = status.get("room") or {}
    before, after = both.get("before") or {}, both.get("after") or {}
    others = {*before, *after} - {"nodes", *_FIRST}
    rows = []
    for name in (*_FIRST, *sorted(others)):
        was, is_ = (_number(name, one.get(name, 0)) for one in (before, after))
        if was or is_:
            title = _ROOM.get(name, name)
            rows.append(Room(title, _amount(name, was), _amount(name, is_), is_ < was))
    return rows


def _number(name: str, amount: object) -> int:
    if isinstance(amount, int):
        return amount
    try:
        return milli_value(str(amount)) if name == "cpu" else value(str(amount))
    except QuantityError:
        return 0


def _amount(name: str, number: int) -> str:
    return f"{number:,}" if name in ("open", "pods") else formatting.amount(name, number)


class OperationStep(msgspec.Struct, frozen=True):
    """A step of an operation: the object, the change, the state, and why it failed."""

    subject: str
    does: str
    state: str
    message: str


def steps(plan: StoredPlan) -> list[OperationStep]:
    """Return the steps of a plan; those held back and failed come first."""
    found = []
    for number, (step, state) in enumerate(zip(plan.to_do(), plan.progress, strict=True)):
        does = ", ".join(step["change"]) if step["do"] == "edit" else step["do"]
        message = plan.failures.get(str(number), "")
        found.append(OperationStep(step["subject"], does, _STATES[state], message))
    troubles = {_STATES[HELD], _STATES[HAS_FAILED]}
    return sorted(found, key=lambda one: one.state not in troubles)[:_MOST_STEPS]


def differences(found: Iterable[Manifest]) -> list[tuple[str, str, str]]:
    """Return the differences of two plans as (object, old text, new text)."""
    return [
        (one.get("pod") or "the steps", _in_words(one["before"]), _in_words(one["after"]))
        for one in found
    ]


def _in_words(what: object) -> str:
    if what is None:
        return "not affected"
    if isinstance(what, list):
        return ", ".join(str(one) for one in what) or "nothing"
    assert isinstance(what, dict)
    if "cause" not in what:
        return f"is placed on {what['nodeName']}" if what.get("nodeName") else "waits"
    text = f"leaves {what.get('nodeName') or 'the queue'} by {what.get('rule') or what['cause']}"
    if what.get("blockedBy"):
        return f"held back by {what['blockedBy']}"
    if what.get("landing"):
        return f"{text}; lands on {what['landing']}"
    return f"{text}; lands nowhere" if "landing" in what else text


def button(changes: Sequence[Manifest], summary: Mapping[str, Any]) -> str:
    """Return the label of the confirming button: the action, and how many pods leave."""
    many = summary.get("leaving", 0) + summary.get("held", 0)
    pods = f"{many} pod{'' if many == 1 else 's'}"
    kinds = {what for change in changes for what in change}
    if kinds == {"drain"}:
        return f"Cordon and evict {pods}" if many else "Cordon"
    if kinds == {"evict"}:
        removes = any(change["evict"].get("disableEviction") for change in changes)
        return f"{'Delete' if removes else 'Evict'} {pods}"
    if kinds == {"scale"} and len(changes) == 1:
        return f"Scale to {changes[0]['scale']['replicas']}" + (f", {pods} will leave" * bool(many))
    verb = {"cordon": "Cordon", "uncordon": "Uncordon", "taint": "Taint", "delete": "Delete"}
    word = verb.get(next(iter(kinds)), "Change") if len(kinds) == 1 else "Change"
    nodes = summary.get("nodes", 0)
    if nodes and kinds <= {"cordon", "uncordon", "taint", "untaint", "label", "resize", "delete"}:
        word += " node" if nodes == 1 else f" {nodes} nodes"
    elif word == "Change":
        word = "Make the change"
    return f"{word}, {pods} will leave" if many else word


def progress(plan: StoredPlan) -> dict[str, int]:
    """Return the numbers of all steps, and of those done, held back, failed and left."""
    return {
        "steps": len(plan.progress),
        "done": plan.progress.count(IS_DONE),
        "held": plan.progress.count(HELD),
        "failed": plan.progress.count(HAS_FAILED),
        "left": plan.progress.count(TO_DO),
    }
