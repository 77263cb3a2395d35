"""The questions that an advisor answers, by name.

A question is a function of the live world and a JSON document::

    def headroom(world: World, document: object) -> Manifest | bytes

It gives a JSON value, or JSON text as bytes where the text is at hand. It changes nothing that is
stored, raises ``StatusError`` where the question is wrong, and asks ``world.go_on`` in long loops,
where it may also say how far it is (``world.tell``).
To add one, add a line to ``QUESTIONS``. The modules are imported when they are first needed: they
bring NumPy and the engine along, which who asks does without.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final

import msgspec


class Question(msgspec.Struct, frozen=True):
    """The function that answers a question (``module:function``), and how long it may take.

    ``long``: it may take a second or more. An advisor always keeps a thread for those that do not.
    """

    place: str
    seconds: float = 60.0
    long: bool = False


QUESTIONS: Final[Mapping[str, Question]] = {
    "placement": Question("scheduling.answers.questions:simulate", seconds=20.0),
    "simulation": Question("scheduling.answers.questions:simulate", long=True),
    "headroom": Question("scheduling.answers.questions:headroom", long=True),
    "room": Question("scheduling.answers.room_left:room_left", seconds=20.0),
    "node-advice": Question("scheduling.answers.node_advice:node_advice", long=True),
    "packing": Question("scheduling.answers.packing:packing", long=True),
    "landings": Question("scheduling.answers.questions:landings_of", seconds=20.0),
    "why": Question("scheduling.answers.why:why", long=True),
    "waiting-groups": Question("scheduling.answers.waiting_groups:waiting_groups", long=True),
    "plan": Question("scheduling.answers.plans:plan", long=True),
    "comparison": Question("scheduling.answers.comparing:comparison", long=True),
    "decision": Question("scheduling.answers.questions:decision_explained", long=True),
}


def answer(
    name: str,
    document: object,
    *,
    until: float | None = None,
    tell: Callable[[str, float], None] | None = None,
) -> bytes:
    """Return the answer to a question as JSON text.

    Args:
        name: one of ``QUESTIONS``.
        document: decoded JSON.
        until: the latest time for the answer, in monotonic seconds.
        tell: called with the progress (``LiveWorld.tell``).

    Raises:
        StatusError: as the question says.
    """
    from scheduling.answers.live import LiveWorld

    module, _, function = QUESTIONS[name].place.partition(":")
    found: Any = getattr(import_module(module), function)(LiveWorld(until, tell), document)
    return found if isinstance(found, bytes) else msgspec.json.encode(found)
