"""Content of a hollow node's directories that pods mount (``hostPath``).

A container finds the files that others wrote there before it starts. The files at the start of each
run of a pod are stored until the pod is gone, since its outcome is computed again and again
(`commands.outcome`). All of it is in the memory of this process; other fleets do not see it.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from clusterstate.local.hollow import commands

Pod = dict[str, Any]
Files = Mapping[str, str]

_MOST_FILES: Final = 1000
_MOST_CHANGES: Final = 1000
_NONE: Final[dict[int, Files]] = {}


class Directories:
    """The directories of one node."""

    def __init__(self) -> None:
        self._changes: list[tuple[datetime, dict[str, str | None]]] = []
        """Times, in order, and the files written or removed (``None``) then; some are to come."""
        self._files: dict[str, str] = {}
        self._found: dict[str, dict[int, Files]] = {}
        """The files that a pod's runs found, by its uid and the number of the run."""

    def runs_of(self, pod: Pod) -> Mapping[int, Files]:
        """Return the files that each run of a pod found at its start, by the number of the run."""
        return self._found.get(pod["metadata"]["uid"], _NONE)

    def begin(self, pod: Pod, now: datetime) -> Mapping[int, Files]:
        """Record the present files for the start of the pod's next run (of its containers).

        Returns the files that each of its runs so far found, by the number of the run.
        """
        if not _mounts_any(pod):
            return _NONE
        runs = self._found.setdefault(pod["metadata"]["uid"], {})
        number, is_on = _run_of(pod)
        if not is_on or number not in runs:
            runs[number] = self._at(now)
        return runs

    def note(self, pod: Pod, status: Mapping[str, Any], now: datetime) -> None:
        """Record the files that a container will write, if the status says that it began."""
        if not _mounts_any(pod) or status.get("phase") != "Running" or _run_of(pod)[1]:
            return
        number, is_on = _run_of({**pod, "status": {**(pod.get("status") or {}), **status}})
        if not is_on:
            return
        for container in pod["spec"].get("containers", ()):
            found = commands.outcome(pod, container, number)
            if found is None or not found.history:
                continue
            before = commands.on_host(pod, container, found.history[0][1])
            for second, files in found.history[1:]:
                there = commands.on_host(pod, container, files)
                changed: dict[str, str | None] = {
                    path: text for path, text in there.items() if before.get(path) != text
                }
                changed |= {path: None for path in before if path not in there}
                if changed and second < 1e9:
                    self._changes.append((now + timedelta(seconds=second), changed))
                before = there
        self._changes.sort(key=lambda one: one[0])
        del self._changes[:-_MOST_CHANGES]

    def forget(self, uid: str) -> None:
        """Remove a pod that is gone; the files that it wrote stay."""
        self._found.pop(uid, None)

    def _at(self, now: datetime) -> Files:
        while self._changes and self._changes[0][0] <= now:
            for path, text in self._changes.pop(0)[1].items():
                self._files.pop(path, None)
                if text is not None:
                    self._files[path] = text
        while len(self._files) > _MOST_FILES:
            del self._files[next(iter(self._files))]
        return dict(self._files)


def _mounts_any(pod: Pod) -> bool:
    return any(one.get("hostPath") for one in pod["spec"].get("volumes") or ())


def _run_of(pod: Pod) -> tuple[int, bool]:
    """Return the number of a pod's current or next run, and whether it is running now."""
    first = ((pod.get("status") or {}).get("containerStatuses") or [{}])[0]
    restarts = first.get("restartCount") or 0
    state = first.get("state") or {}
    if "running" in state or "terminated" in state:
        return restarts, True
    is_restarted = (state.get("waiting") or {}).get("reason") == "CrashLoopBackOff"
    return restarts + is_restarted, False
