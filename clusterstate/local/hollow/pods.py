"""Pod statuses that a hollow node's agent reports, and when they change by themselves.

Pure. A container's command (`commands`) and probes (`probes`) decide how long it runs, and when it
is ready or killed. Annotations of the pod decide the same for any image, and may be changed while
it runs. Some names of images stand for one that cannot be pulled (`is_missing`). Init containers
run one after the other; those that cannot be simulated succeed at once.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from clusterstate.local.hollow import commands, probes, resizes, shell
from clusterstate.local.hollow.commands import Run
from clusterstate.local.hollow.resizes import Room
from clusterstate.objects.rules import resizing
from clusterstate.objects.rules.own_annotations import EXIT, READY, RUN, STOP
from clusterstate.objects.values.numbers import annotated_number

Pod = dict[str, Any]

_LONGEST: Final = 300.0
_CRASH: Final = "CrashLoopBackOff"
_NO_IMAGE: Final = "ImagePullBackOff"
_MISSING_TAGS: Final = ("404", "non-existent", "nonexistent")
"""Tags of images that cannot be pulled, as names that begin with ``invalid.`` cannot."""
_KILLED: Final = 137
_SIGNALS: Final = (_KILLED, 143)
_NOT_BEGUN: Final = "PodInitializing"
_WRONG_OS: Final = "Failed to admit pod as the OS field doesn't match node OS"
_LATE: Final = "Pod was active on the node longer than the specified deadline"
FINISHED: Final = ("Succeeded", "Failed")


class Report(msgspec.Struct, frozen=True):
    """The status to report, ``None`` if it is unchanged; the seconds until the next report."""

    status: dict[str, Any] | None = None
    again: float | None = None


def run_of(pod: Pod) -> Run:
    """Return how long a pod's containers run, and with which exit code they end or are killed."""
    marks = _annotations(pod)
    if RUN in marks or EXIT in marks:
        after, code = (annotated_number(marks.get(one, "")) or 0.0 for one in (RUN, EXIT))
        return Run(after, int(code))
    earlier = _restarts(pod)
    containers = pod["spec"].get("containers", ())
    runs = [commands.run_of_container(pod, one, earlier) for one in containers]
    seconds = [one.seconds for one in runs if one.seconds is not None]
    found = Run()
    if runs and len(seconds) == len(runs):
        found = Run(max(seconds), next((one.exit_code for one in runs if one.exit_code), 0))
    elif (around := pod.get(commands.NODE)) is not None and _is_of_job(pod):
        found = Run(around.job_seconds)
    killed = probes.killed_after(pod, earlier)
    if killed is not None and (found.seconds is None or killed < found.seconds):
        return Run(killed, _KILLED)
    return found


def _is_of_job(pod: Pod) -> bool:
    owners = pod["metadata"].get("ownerReferences") or ()
    return any(one.get("controller") and one.get("kind") == "Job" for one in owners)


def _restarts(pod: Pod) -> int:
    """Return how often a pod's containers were restarted."""
    before = (pod.get("status") or {}).get("containerStatuses") or [{}]
    return before[0].get("restartCount") or 0


def _rest(restarts: int) -> float:
    """Return the seconds of back-off before a container's next start; 0 for the first one."""
    return min(_LONGEST, 10.0 * 2.0 ** min(restarts - 1, 10)) if restarts else 0.0


def stopped_status(pod: Pod, now: datetime) -> dict[str, Any] | None:
    """Return the last status of a pod that is deleted while it runs: how its containers ended.

    They end by themselves, or by their trap for SIGTERM, or are killed. ``None``: their commands
    never end, or the pod is not running.
    """
    status = pod.get("status") or {}
    run = run_of(pod)
    if status.get("phase") != "Running":
        return None
    if (trapped := _trapped(pod)) is not None:
        seconds, code = trapped
        grace = pod["metadata"].get("deletionGracePeriodSeconds") or 0
        return ended_status(pod, code if seconds <= grace else _KILLED, now)
    if run.seconds is None:
        return None
    first = (status.get("containerStatuses") or [{}])[0]
    since = ((first.get("state") or {}).get("running") or {}).get("startedAt")
    has_ended = (now - _moment(since, now)).total_seconds() >= run.seconds
    return ended_status(pod, run.exit_code if has_ended else _KILLED, now)


def _trapped(pod: Pod) -> tuple[float, int] | None:
    """Return after how many seconds a deleted pod ends, and its exit code, by a trap for SIGTERM.

    ``None``: no container has a trap. The time is since the deletion, a ``preStop`` hook included.
    """
    text, grace = (
        pod["metadata"].get(name) for name in ("deletionTimestamp", "deletionGracePeriodSeconds")
    )
    first = ((pod.get("status") or {}).get("containerStatuses") or [{}])[0]
    since = ((first.get("state") or {}).get("running") or {}).get("startedAt")
    if not text or not since:
        return None
    began = datetime.fromisoformat(since)
    elapsed = (_moment(text, began) - began).total_seconds() - (grace or 0)
    found = []
    for one in pod["spec"].get("containers", ()):
        outcome = commands.outcome(pod, one, _restarts(pod))
        hook = _hook_seconds(one)
        at = max(0.0, elapsed) + hook
        trapped = None if outcome is None else shell.stopped(outcome, at)
        if trapped is not None:
            found.append((trapped[0] + hook, trapped[1]))
    if not found:
        return None
    return max(seconds for seconds, _ in found), next((code for _, code in found if code), 0)


def _hook_seconds(container: dict[str, Any]) -> float:
    hook = ((container.get("lifecycle") or {}).get("preStop") or {}).get("sleep") or {}
    return float(hook.get("seconds") or 0)


def is_missing(image: str) -> bool:
    """Return whether an image cannot be pulled, as the prefix ``invalid.`` or its tag says."""
    return image.startswith("invalid.") or image.rpartition(":")[2] in _MISSING_TAGS


def is_ready(pod: Pod, elapsed: float = 0.0) -> bool:
    """Return whether a pod is ready after its containers have run for ``elapsed`` seconds."""
    if _annotations(pod).get(READY) == "false":
        return False
    if not probes.are_ready(pod, elapsed, _restarts(pod)):
        return False
    held = {one["type"]: one["status"] for one in _conditions(pod)}
    gates = pod["spec"].get("readinessGates") or ()
    return all(held.get(one["conditionType"]) == "True" for one in gates)


def stop_seconds(pod: Pod, usual: float) -> float:
    """Return how long a pod takes to stop once it is deleted, within its grace period."""
    marked = annotated_number(_annotations(pod).get(STOP, ""))
    if marked is not None:
        return marked
    if (trapped := _trapped(pod)) is not None:
        return trapped[0]
    return max([usual, *map(_hook_seconds, pod["spec"].get("containers", ()))])


def report(
    pod: Pod, address: str, host: str, now: datetime, room: Callable[[], Room] | None = None
) -> Report:
    """Return the status to report of a pod that is not being deleted.

    ``address`` and ``host`` are the addresses of the pod and its node. ``room`` returns the node's
    free amounts, for a resize; ``None``: no pod is resized.
    """
    status = pod.get("status") or {}
    phase = status.get("phase")
    if phase in FINISHED:
        return Report()
    if phase != "Running":
        if ((pod["spec"].get("os") or {}).get("name") or "linux") != "linux":
            failed_status = {"phase": "Failed", "reason": "PodOSNotSupported", "message": _WRONG_OS}
            return Report({**failed_status, **_generation(pod)})
        if any(is_missing(one.get("image", "")) for one in pod["spec"].get("containers", ())):
            return _report_of_waiting(pod, address, host, now)
        begun = _begun(pod, now)
        if begun.incomplete:
            return _report_of_beginning(pod, begun, address, host, now)
        new_status = _running(pod, address, host, now, restarts=0, since=now)
        if begun.statuses:
            new_status["initContainerStatuses"] = begun.statuses
        return Report(new_status)
    resized = None if room is None else resizes.decide(pod, room, text_of(now))
    if resized is not None:
        pod, status = resized, resized["status"]
    found = _report_of_running(pod, status, address, host, now, resized=resized is not None)
    if resizing.waits(pod):
        again = resizes.AGAIN if found.again is None else min(found.again, resizes.AGAIN)
        found = Report(found.status, again)
    deadline = pod["spec"].get("activeDeadlineSeconds")
    if deadline is None:
        return found
    remaining = deadline - (now - _moment(status.get("startTime"), now)).total_seconds()
    if remaining <= 0:
        new_status = ended_status(pod, _KILLED, now)
        return Report({**new_status, "reason": "DeadlineExceeded", "message": _LATE})
    return Report(found.status, remaining if found.again is None else min(remaining, found.again))


def _report_of_waiting(pod: Pod, address: str, host: str, now: datetime) -> Report:
    """Return the report that images cannot be pulled, once for each generation of the pod."""
    status = pod.get("status") or {}
    reasons = [
        ((one.get("state") or {}).get("waiting") or {}).get("reason")
        for one in status.get("containerStatuses") or ()
    ]
    generation = pod["metadata"].get("generation")
    if _NO_IMAGE in reasons and generation in (None, status.get("observedGeneration")):
        return Report()
    new_status = _running(pod, address, host, now, restarts=0, since=now)
    for one in new_status["containerStatuses"]:
        if is_missing(one["image"]):
            text = f'Back-off pulling image "{one["image"]}"'
            one["state"] = {"waiting": {"reason": _NO_IMAGE, "message": text}}
            one["imageID"], one["ready"], one["started"] = "", False, False
    conditions = _with_conditions(pod, now, ready=False, reason="ContainersNotReady")
    return Report({**new_status, "phase": "Pending", "conditions": conditions})


class _Begun(msgspec.Struct, frozen=True):
    """The progress of a pod's init containers: their statuses, and the names of unfinished ones.

    ``has_failed``: one failed for good. ``again``: seconds until the next report.
    """

    statuses: list[dict[str, Any]]
    incomplete: list[str]
    has_failed: bool = False
    again: float | None = None


def _begun(pod: Pod, now: datetime) -> _Begun:
    """Return the progress of the init containers at ``now``; they run one after the other."""
    statuses_by_name = {one["name"]: one for one in _inits(pod)}
    statuses: list[dict[str, Any]] = []
    incomplete: list[str] = []
    has_failed, again = False, None
    for one in pod["spec"].get("initContainers") or ():
        if incomplete:
            waiting = _container(one, {"waiting": {"reason": _NOT_BEGUN}}, ready=False)
            statuses.append(waiting)
            incomplete.append(one["name"])
            continue
        if _runs_along(one):
            state = {"running": {"startedAt": text_of(now)}}
            statuses.append(statuses_by_name.get(one["name"]) or _container(one, state, ready=True))
            continue
        status, again = _init(pod, one, statuses_by_name.get(one["name"]), now)
        statuses.append(status)
        ended = status["state"].get("terminated")
        if ended is None or ended["exitCode"]:
            incomplete.append(one["name"])
            has_failed = ended is not None
    return _Begun(statuses, incomplete, has_failed, again)


def _init(
    pod: Pod, one: dict[str, Any], previous: dict[str, Any] | None, now: datetime
) -> tuple[dict[str, Any], float | None]:
    """Return the status of the current init container, and the seconds until it changes."""
    before = previous or {}
    restarts, state = before.get("restartCount") or 0, before.get("state") or {}
    if "terminated" in state:
        return before, None
    since = _moment((state.get("running") or {}).get("startedAt"), now)
    if (state.get("waiting") or {}).get("reason") == _CRASH:
        last = (before.get("lastState") or {}).get("terminated") or {}
        rest = _rest(restarts)
        seconds_left = rest - (now - _moment(last.get("finishedAt"), now)).total_seconds()
        if seconds_left > 0:
            return before, seconds_left
        restarts, since = restarts + 1, now
    run = commands.run_of_container(pod, one, restarts)
    seconds_left = (run.seconds or 0.0) - (now - since).total_seconds()
    new_status = {**_container(one, {}, ready=False), "restartCount": restarts}
    if before.get("lastState"):
        new_status["lastState"] = before["lastState"]
    if seconds_left > 0:
        return {
            **new_status,
            "state": {"running": {"startedAt": text_of(since)}},
            "started": True,
        }, seconds_left
    code = 0 if run.seconds is None else run.exit_code
    ended = {
        "exitCode": code, "reason": "Error" if code else "Completed",
        "startedAt": text_of(since), "finishedAt": text_of(now),
    }  # fmt: skip
    if not code or pod["spec"].get("restartPolicy") == "Never":
        return {**new_status, "state": {"terminated": ended}, "ready": not code}, None
    text = "back-off restarting failed container"
    waiting = {"waiting": {"reason": _CRASH, "message": text}}
    rest = _rest(restarts)
    return {**new_status, "state": waiting, "lastState": {"terminated": ended}}, rest


def _report_of_beginning(pod: Pod, begun: _Begun, address: str, host: str, now: datetime) -> Report:
    """Return the report of a pod with unfinished init containers, without a status if unchanged."""
    status, generation = pod.get("status") or {}, pod["metadata"].get("generation")
    is_seen = generation in (None, status.get("observedGeneration"))
    if is_seen and not begun.has_failed and begun.statuses == _inits(pod):
        return Report(again=begun.again)
    new_status = _running(pod, address, host, now, restarts=0, since=now)
    for one in new_status["containerStatuses"]:
        one["state"] = {"waiting": {"reason": _NOT_BEGUN}}
        one["ready"] = one["started"] = False
    conditions = _with_conditions(
        pod, now, ready=False, reason="ContainersNotReady", incomplete=begun.incomplete
    )
    return Report(
        {
            **new_status,
            "phase": "Failed" if begun.has_failed else "Pending",
            "conditions": conditions,
            "initContainerStatuses": begun.statuses,
        },
        begun.again,
    )


def _inits(pod: Pod) -> list[dict[str, Any]]:
    return (pod.get("status") or {}).get("initContainerStatuses") or []


def _report_of_running(
    pod: Pod, status: dict[str, Any], address: str, host: str, now: datetime, *, resized: bool
) -> Report:
    first = (status.get("containerStatuses") or [{}])[0]
    state, restarts = first.get("state") or {}, first.get("restartCount") or 0
    generation = pod["metadata"].get("generation")
    is_seen = generation in (None, status.get("observedGeneration"))
    if (state.get("waiting") or {}).get("reason") == _CRASH:
        ended = ((first.get("lastState") or {}).get("terminated") or {}).get("finishedAt")
        rest = _rest(restarts)
        seconds_left = rest - (now - _moment(ended, now)).total_seconds()
        if seconds_left > 0:
            return Report(None if is_seen else _generation(pod), seconds_left)
        return Report(_running(pod, address, host, now, restarts=restarts + 1, since=now))
    since = _moment((state.get("running") or {}).get("startedAt") or status.get("startTime"), now)
    run, policy, again = run_of(pod), pod["spec"].get("restartPolicy", "Always"), None
    if run.seconds is not None:
        again = run.seconds - (now - since).total_seconds()
        if again <= 0:
            if policy == "Never" or (policy == "OnFailure" and not run.exit_code):
                return Report(ended_status(pod, run.exit_code, now))
            return Report(_crashed(pod, run.exit_code, restarts, now))
    reported = next((one for one in _conditions(pod) if one["type"] == "Ready"), {})
    elapsed = (now - since).total_seconds()
    turns = probes.next_turn(pod, elapsed, restarts)
    again = min((one for one in (again, turns) if one is not None), default=None)
    is_right = (reported.get("status") == "True") == is_ready(pod, elapsed)
    if resized:  # each container was started as often as its status says by now
        return Report(_running(pod, address, host, now, restarts=None, since=since), again)
    is_told = first.get("resources") is not None
    if is_right and is_seen and is_told and (status.get("podIP") or "") == address:
        return Report(again=again)
    new_status = _running(pod, address, host, now, restarts=restarts, since=since)
    return Report(new_status, again)


def started_event(pod: Pod, now: str) -> dict[str, Any]:
    """Return the Event that a pod's first container was started, as kubelets write it."""
    metadata, node = pod["metadata"], pod["spec"]["nodeName"]
    namespace, name = metadata["namespace"], pod["spec"]["containers"][0]["name"]
    return {
        "metadata": {"generateName": f"{metadata['name']}.", "namespace": namespace},
        "involvedObject": {
            "kind": "Pod", "apiVersion": "v1", "namespace": namespace, "name": metadata["name"],
            "uid": metadata["uid"], "fieldPath": f"spec.containers{{{name}}}",
        },
        "reason": "Started", "message": f"Started container {name}", "type": "Normal",
        "source": {"component": "kubelet", "host": node}, "reportingComponent": "kubelet",
        "reportingInstance": node, "firstTimestamp": now, "lastTimestamp": now, "count": 1,
    }  # fmt: skip


def ended_status(pod: Pod, exit_code: int, now: datetime) -> dict[str, Any]:
    """Return the status of a pod whose containers ended for good."""
    reason = "Error" if exit_code else "Completed"
    state = {"terminated": _terminated(pod, exit_code, now, reason)}
    return {
        "phase": "Failed" if exit_code else "Succeeded",
        "conditions": _with_conditions(pod, now, ready=False, reason="PodCompleted"),
        "containerStatuses": _with_messages(pod, _containers(pod, state, now, ready=False)),
        **_generation(pod),
    }


def _running(
    pod: Pod, address: str, host: str, now: datetime, *, restarts: int | None, since: datetime
) -> dict[str, Any]:
    ready = is_ready(pod, (now - since).total_seconds())
    state = {"running": {"startedAt": text_of(since)}}
    status: dict[str, Any] = {
        "phase": "Running",
        "startTime": (pod.get("status") or {}).get("startTime") or text_of(now),
        "conditions": _with_conditions(pod, now, ready=ready, reason="ContainersNotReady"),
        "containerStatuses": _containers(pod, state, now, ready=ready, restarts=restarts),
        "hostIP": host,
        "hostIPs": [{"ip": host}],
        **_generation(pod),
    }
    if address:
        status |= {"podIP": address, "podIPs": [{"ip": address}]}
    before = pod["spec"].get("initContainers") or ()
    if before:
        done = _terminated(pod, 0, now, "Completed")
        statuses_by_name = {one["name"]: one for one in _inits(pod)}
        status["initContainerStatuses"] = [
            statuses_by_name.get(one["name"])
            or {
                **_container(one, state if _runs_along(one) else {"terminated": done}, ready=True),
                **(resizes.reported_resources(one, {}) if _runs_along(one) else {}),
            }
            for one in before
        ]
    return status


def _crashed(pod: Pod, exit_code: int, restarts: int, now: datetime) -> dict[str, Any]:
    """Return the status of a pod whose containers ended and will be restarted."""
    text = "back-off restarting failed container"
    state = {"waiting": {"reason": _CRASH, "message": text}}
    last = {"terminated": _terminated(pod, exit_code, now, "Error" if exit_code else "Completed")}
    found = _containers(pod, state, now, ready=False, restarts=restarts)
    return {
        "conditions": _with_conditions(pod, now, ready=False, reason="ContainersNotReady"),
        "containerStatuses": [
            {**one, "lastState": one["state"], "state": state}
            for one in _with_messages(pod, [{**one, "state": last} for one in found])
        ],
        **_generation(pod),
    }


def _with_messages(pod: Pod, statuses: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the statuses of ended containers with their termination messages."""
    by_name = {one["name"]: one for one in pod["spec"].get("containers", ())}
    found = []
    for one in statuses:
        ended = one["state"]["terminated"]
        text = ""
        if ended["exitCode"] not in _SIGNALS:
            outcome = commands.outcome(pod, by_name[one["name"]], _restarts(pod))
            text = commands.last_words(by_name[one["name"]], outcome, ended["exitCode"])
        found.append({**one, "state": {"terminated": {**ended, "message": text}}} if text else one)
    return found


def _terminated(pod: Pod, exit_code: int, now: datetime, reason: str) -> dict[str, Any]:
    began = (pod.get("status") or {}).get("startTime") or text_of(now)
    return {
        "exitCode": exit_code, "reason": reason, "startedAt": began, "finishedAt": text_of(now),
    }  # fmt: skip


def _containers(
    pod: Pod, state: dict[str, Any], now: datetime, *, ready: bool, restarts: int | None = None
) -> list[dict[str, Any]]:
    before = {one["name"]: one for one in (pod.get("status") or {}).get("containerStatuses") or ()}
    found = []
    for one in pod["spec"].get("containers", ()):
        previous = before.get(one["name"], {})
        entry = _container(one, state, ready=ready)
        entry["restartCount"] = previous.get("restartCount", 0) if restarts is None else restarts
        if previous.get("lastState"):
            entry["lastState"] = previous["lastState"]
        if "running" in state:
            entry |= resizes.reported_resources(one, previous)
        found.append(entry)
    return found


def _container(one: dict[str, Any], state: dict[str, Any], *, ready: bool) -> dict[str, Any]:
    image = one.get("image", "")
    return {
        "name": one["name"], "image": image, "imageID": image and f"hollow://{image}",
        "containerID": "", "ready": ready, "started": "running" in state, "restartCount": 0,
        "state": state,
    }  # fmt: skip


def _runs_along(container: dict[str, Any]) -> bool:
    return container.get("restartPolicy") == "Always"


def _with_conditions(
    pod: Pod, now: datetime, *, ready: bool, reason: str, incomplete: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Return the pod's conditions with those that its agent sets.

    ``incomplete`` are the names of unfinished init containers.
    """
    values = {"PodReadyToStartContainers": True, "Initialized": not incomplete}
    values |= {"ContainersReady": ready, "Ready": ready}
    before = {one["type"]: one for one in _conditions(pod)}
    conditions = [
        {**one, **_generation(pod)} if name == "PodScheduled" else one
        for name, one in before.items()
        if name not in values
    ]
    for name, is_true in values.items():
        status = "True" if is_true else "False"
        previous = before.get(name) or {}
        same = previous.get("status") == status
        entry = {
            "type": name,
            "status": status,
            "lastTransitionTime": previous.get("lastTransitionTime") if same else text_of(now),
            **_generation(pod),
        }
        if name == "Initialized" and incomplete:
            entry["reason"] = "ContainersNotInitialized"
            entry["message"] = f"containers with incomplete status: [{' '.join(incomplete)}]"
        elif not is_true:
            entry["reason"] = reason
        conditions.append(entry)
    return conditions


def _generation(pod: Pod) -> dict[str, int]:
    generation = pod["metadata"].get("generation")
    return {} if generation is None else {"observedGeneration": generation}


def _annotations(pod: Pod) -> dict[str, str]:
    return pod["metadata"].get("annotations") or {}


def _conditions(pod: Pod) -> list[dict[str, Any]]:
    return (pod.get("status") or {}).get("conditions") or []


def _moment(text: str | None, default: datetime) -> datetime:
    try:
        found = datetime.fromisoformat(text) if text else default
    except ValueError:
        return default
    return found if found.tzinfo else default


def text_of(moment: datetime) -> str:
    """Return a time as RFC 3339 text, to the second."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
