"""Simulated containers of hollow nodes: how long they run, how they end, the files they leave.

Pure. The outcome of a container follows from its command if that can be simulated: ``sleep 5``,
``true``, ``false``, and small scripts in ``sh -c`` (`shell`). Any other command runs for ever.
Without a command the image decides: an image of a shell or an interpreter ends at once, since its
standard input is empty; any other is a server, and runs for ever.
"""

import math
import re
import zlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from clusterstate.local.hollow import shell

Pod = dict[str, Any]
Container = dict[str, Any]

_SHELLS: Final = ("sh", "bash", "ash")
_MOST_RUNS: Final = 20
_REFERENCE: Final = re.compile(r"\$\((\w+)\)")
_MARK: Final = re.compile(r"metadata\.(annotations|labels)\['(.+)'\]")
_LAST_WORDS: Final = "/dev/termination-log"
_LONGEST_MESSAGE: Final = 4096
_LONGEST_OF_OUTPUT: Final = 2048


NODE: Final = "hollow.stowage.dev/node"
"""Key in a pod, beside metadata, spec and status: the `Surroundings` that its node adds."""
_ENDS_AT_ONCE: Final = frozenset(
    {
        "alpine", "amazonlinux", "archlinux", "bash", "busybox", "centos", "debian", "fedora",
        "hello-world", "node", "openjdk", "perl", "php", "python", "rockylinux", "ruby", "ubuntu",
    }
)  # fmt: skip
"""Images, by the last part of their names, whose own command ends without input."""


class Surroundings(msgspec.Struct, frozen=True):
    """Facts that a hollow node adds to a pod.

    ``host_files``: the files in the pod's node directories at the start of each of its runs, by the
    number of the run. ``job_seconds``: a Job's pods whose command would run for ever end after this
    time.
    """

    host_files: Mapping[int, Mapping[str, str]] = {}
    job_seconds: float | None = None


class Run(msgspec.Struct, frozen=True):
    """How many seconds a command runs, ``None`` for ever, and its exit code."""

    seconds: float | None = None
    exit_code: int = 0


def run_of_command(words: list[str], files: Mapping[str, str] | None = None) -> Run:
    """Return how long a command would run, and its exit code, without running it.

    Args:
        words: the command and its arguments.
        files: the contents of mounted files by path; ``None`` if they are unknown.
    """
    try:
        found = _played(words, {}, files)
    except shell.NotPlayed:
        return Run()
    return _run(found)


def _run(found: shell.Outcome) -> Run:
    return Run() if math.isinf(found.seconds) else Run(found.seconds, found.exit_code)


def run_of_container(pod: Pod, container: Container, earlier: int) -> Run:
    """Return the run of a container after ``earlier`` runs."""
    found = outcome(pod, container, earlier)
    return Run() if found is None else _run(found)


def outcome(pod: Pod, container: Container, earlier: int) -> shell.Outcome | None:
    """Return the outcome of a container's run; ``None`` if it cannot be simulated.

    ``earlier``: the number of runs before. These are simulated first, for the files that they left
    in volumes.
    """
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    if not words:
        return _of_image(container)
    variables = _variables(pod, container)
    words = [_REFERENCE.sub(lambda one: variables.get(one[1], one[0]), word) for word in words]
    volumes = tuple(
        f"{one['mountPath'].rstrip('/')}/" for one in container.get("volumeMounts") or ()
    )
    around: Surroundings | None = pod.get(NODE)
    found = shell.Outcome(0, 0)
    try:
        for number in range(min(earlier, _MOST_RUNS) + 1):
            chance = zlib.crc32(f"{pod['metadata'].get('uid')}/{number}".encode()) % 32768
            files = {one: text for one, text in found.files.items() if one.startswith(volumes)}
            if around is not None and number in around.host_files:
                files = _with_host(pod, container, files, around.host_files[number])
            found = _played(words, {**variables, "RANDOM": str(chance)}, files)
    except shell.NotPlayed:
        return None
    return found


def _of_image(container: Container) -> shell.Outcome | None:
    """Return the outcome of an image's own command, ``None`` for a server."""
    name = (container.get("image") or "").partition("@")[0].rpartition("/")[2].partition(":")[0]
    has_input = container.get("stdin") or container.get("tty")
    return shell.Outcome(0, 0) if name in _ENDS_AT_ONCE and not has_input else None


def host_mounts(pod: Pod, container: Container) -> list[tuple[str, str]]:
    """Return (path in the container, path on the node) of each node directory that it mounts.

    Both end in ``/``.
    """
    paths = {
        one["name"]: one["hostPath"]["path"]
        for one in pod["spec"].get("volumes") or ()
        if (one.get("hostPath") or {}).get("path")
    }
    return [
        (f"{one['mountPath'].rstrip('/')}/", f"{paths[one['name']].rstrip('/')}/")
        for one in container.get("volumeMounts") or ()
        if one["name"] in paths and not one.get("subPath") and not one.get("subPathExpr")
    ]


def _with_host(
    pod: Pod, container: Container, files: Mapping[str, str], host: Mapping[str, str]
) -> dict[str, str]:
    mounts = host_mounts(pod, container)
    own = tuple(inside for inside, _ in mounts)
    result = {path: text for path, text in files.items() if not path.startswith(own)} if own else {}
    for inside, outside in mounts:
        for path, text in host.items():
            if path.startswith(outside):
                result[inside + path.removeprefix(outside)] = text
    return result if own else dict(files)


def on_host(pod: Pod, container: Container, files: Mapping[str, str]) -> dict[str, str]:
    """Return a container's files in node directories, by their paths on the node."""
    return {
        outside + path.removeprefix(inside): text
        for inside, outside in host_mounts(pod, container)
        for path, text in files.items()
        if path.startswith(inside)
    }


def last_words(container: Container, found: shell.Outcome | None, exit_code: int) -> str:
    """Return the termination message of a container that ended by itself.

    It is the content of its termination log. If that is empty, the container failed, and its
    ``terminationMessagePolicy`` is ``FallbackToLogsOnError``, it is the end of its output. Rule:
    pkg/kubelet/kuberuntime, v1.36.
    """
    if found is None:
        return ""
    text = found.files.get(container.get("terminationMessagePath") or _LAST_WORDS, "")
    falls_back = container.get("terminationMessagePolicy") == "FallbackToLogsOnError"
    if not text and falls_back and exit_code:
        return found.output[-_LONGEST_OF_OUTPUT:]
    return text[:_LONGEST_MESSAGE]


def _played(
    words: list[str], variables: Mapping[str, str], files: Mapping[str, str] | None
) -> shell.Outcome:
    if not words:
        raise shell.NotPlayed
    if len(words) >= 3 and words[0].rpartition("/")[2] in _SHELLS and words[1] == "-c":
        return shell.play(words[2], variables, files)
    return shell.run(words, variables, files)


def _variables(pod: Pod, container: dict[str, Any]) -> dict[str, str]:
    """Return a container's environment, without variables from other objects."""
    metadata, variables = pod["metadata"], {"HOSTNAME": pod["metadata"].get("name", "")}
    fields = {
        "metadata.name": metadata.get("name"),
        "metadata.namespace": metadata.get("namespace"),
        "metadata.uid": metadata.get("uid"),
        "spec.nodeName": pod["spec"].get("nodeName"),
        "spec.serviceAccountName": pod["spec"].get("serviceAccountName"),
    }
    for one in container.get("env") or ():
        path = ((one.get("valueFrom") or {}).get("fieldRef") or {}).get("fieldPath") or ""
        if mark := _MARK.fullmatch(path):
            value = (metadata.get(mark[1]) or {}).get(mark[2])
        else:
            value = fields.get(path) if path else one.get("value") or ""
        if value is not None:
            variables[one["name"]] = value
    return variables
