"""The questions that an advisor answers, by name.

A question is a function of the live world and a JSON document::

    def headroom(world: World, document: object) -> Manifest | bytes

It returns a JSON value, or JSON text as bytes. It changes nothing stored, raises ``StatusError``
for a wrong question, and calls ``world.go_on`` in long loops; ``world.tell`` reports progress. To
add one, add a line to ``QUESTIONS``. The modules are imported at the first use: they import NumPy
and the engine, which askers do not need.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final

import msgspec


class Question(msgspec.Struct, frozen=True):
    """The function that answers a question (``module:function``), and how long it may take.

    ``long``: it may take a second or more. An advisor reserves a thread for all others.
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
        StatusError: the question failed with it.
    """
    from scheduling.answers.live import LiveWorld

    module, _, function = QUESTIONS[name].place.partition(":")
    found: Any = getattr(import_module(module), function)(LiveWorld(until, tell), document)
    return found if isinstance(found, bytes) else msgspec.json.encode(found)
