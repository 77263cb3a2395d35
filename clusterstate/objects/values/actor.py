"""The author of a change: a user, a controller, the scheduler, or a command's user.

Every entry of the change log names its actor. Code that works on behalf of an actor sets it once
(``acting``) for its thread. The default is the operating-system user of the process: for a
management command or a shell.

A web process works for many users in one statement; there each object has its own actor, which
comes with the user of its request (`clusterstate.admission.request.User`).
"""

import getpass
import uuid
from collections.abc import Callable
from contextvars import ContextVar
from functools import cache, wraps
from typing import Final, ParamSpec, TypeVar

import msgspec

_P = ParamSpec("_P")
_R = TypeVar("_R")


class Actor(msgspec.Struct, frozen=True, gc=False):
    """The author of a change.

    ``impersonator``: the name of the sender who impersonated this user, empty without one.
    ``cause``: the audit id of the request; for preemption, the uid of the preempting pod; else
    ``None``.
    """

    name: str
    impersonator: str = ""
    cause: uuid.UUID | None = None


CONTROLLERS: Final = "system:serviceaccount:kube-system:"
"""What the names of controllers begin with: those of kube-controller-manager's accounts."""


def controller(name: str) -> Actor:
    """Return the actor of a controller, named as kube-controller-manager's service accounts."""
    return Actor(f"{CONTROLLERS}{name}")


KUBE_SCHEDULER: Final = Actor("system:kube-scheduler")
NODE_LIFECYCLE: Final = controller("node-controller")
TAINT_EVICTION: Final = controller("taint-eviction-controller")
APISERVER: Final = Actor("system:apiserver")
"""The service itself: what every cluster has, and counts that a batch of requests moves."""

_acting: ContextVar[Actor | None] = ContextVar("acting", default=None)


@cache
def process_owner() -> Actor:
    """Return the operating-system user of this process as an actor."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container's number without a name
        name = "unknown"
    return Actor(f"system:os:{name}")


def current() -> Actor:
    """Return the actor for whom this thread works now."""
    return _acting.get() or process_owner()


class _Acting:
    """Names the actor of this thread for as long as the block runs."""

    __slots__ = ("_actor", "_token")

    def __init__(self, actor: Actor) -> None:
        self._actor = actor

    def __enter__(self) -> None:
        self._token = _acting.set(self._actor)

    def __exit__(self, *_: object) -> None:
        _acting.reset(self._token)


def acting(actor: Actor) -> _Acting:
    """Work on behalf of an actor, in this thread."""
    return _Acting(actor)


def acts_as(actor: Actor) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Return a decorator: what the function does is done by that actor."""

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        @wraps(function)
        def decorated(*arguments: _P.args, **named: _P.kwargs) -> _R:
            with acting(actor):
                return function(*arguments, **named)

        return decorated

    return decorate
