"""Replaces processes by new ones of the same kind, one after the other, without a pause.

A process reads the code of plugins once. After an upgrade of a package, each process that runs
plugins gets a successor: it is started beside the old one, and when it is warm the old one is asked
to end. Two schedulers at the same time are no problem: one works and the other stands by, so the
successor goes on where the old one stops. A successor that does not become warm is ended, and the
old process stays.
"""

import dataclasses
import time
from collections.abc import Callable, Sequence

from clusterstate.local.supervisor import Child, Supervisor

WARM_SECONDS = 300.0


def renew(
    supervisor: Supervisor,
    children: Sequence[Child],
    is_warm: Callable[[Child], bool],
    *,
    seconds: float = WARM_SECONDS,
) -> bool:
    """Replace children in this order; return whether all were replaced.

    Args:
        supervisor: runs all other children meanwhile.
        children: its children to replace, each of which may run twice for a while.
        is_warm: returns whether a successor can do the work of its predecessor.
        seconds: how long a successor may take to become warm.

    Raises:
        Stopped: the supervisor was asked to stop.
    """
    return all(_replaced(supervisor, child, is_warm, seconds) for child in children)


def _replaced(
    supervisor: Supervisor, old: Child, is_warm: Callable[[Child], bool], seconds: float
) -> bool:
    began = time.monotonic()
    successor = dataclasses.replace(
        old, process=None, failures=0, started_at=0.0, restart_at=None, pieces={}
    )
    supervisor.children.append(successor)
    try:
        process = supervisor.start(successor)
    except Exception as error:  # noqa: BLE001  # whatever it is, the old one goes on
        supervisor.children.remove(successor)
        supervisor.say(f"cannot start a successor: {error}", old.name)
        return False
    while not is_warm(successor):
        if successor.failures or time.monotonic() - began > seconds:
            supervisor.end(successor)
            supervisor.say(
                "its replacement did not become ready; the old process continues", old.name
            )
            return False
        supervisor.watch(0.1)
    supervisor.say(
        f"replaced by pid {process.pid} after {time.monotonic() - began:.1f} s", old.name
    )
    supervisor.end(old)
    return True
