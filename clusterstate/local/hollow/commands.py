"""What the containers of hollow nodes do: how long they run, how they end, what they leave.

Pure. A container runs what its command says, as far as that can be played: ``sleep 5``, ``true``,
``false``, and small scripts in ``sh -c`` (`shell`). Any other command runs for ever.
"""

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


class Run(msgspec.Struct, frozen=True):
    """How long something runs, ``None`` for ever, and its exit code."""

    seconds: float | None = None
    exit_code: int = 0


def run_of_command(words: list[str], files: Mapping[str, str] | None = None) -> Run:
    """Return what comes of a command and its arguments where there are these files.

    ``files``: ``None`` where nobody knows what is in them.
    """
    try:
        found = _played(words, {}, files)
    except shell.NotPlayed:
        return Run()
    return Run(found.seconds, found.exit_code)


def run_of_container(pod: Pod, container: Container, earlier: int) -> Run:
    """Return what comes of a container that ran ``earlier`` times before."""
    found = outcome(pod, container, earlier)
    return Run() if found is None else Run(found.seconds, found.exit_code)


def outcome(pod: Pod, container: Container, earlier: int) -> shell.Outcome | None:
    """Return what comes of a container that ran ``earlier`` times before, if it can be played.

    What earlier runs left in volumes is there: they are played again to see what that was.
    """
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    if not words:
        return None
    known = _variables(pod, container)
    words = [_REFERENCE.sub(lambda one: known.get(one[1], one[0]), word) for word in words]
    volumes = tuple(
        f"{one['mountPath'].rstrip('/')}/" for one in container.get("volumeMounts") or ()
    )
    found = shell.Outcome(0, 0)
    try:
        for number in range(min(earlier, _MOST_RUNS) + 1):
            chance = zlib.crc32(f"{pod['metadata'].get('uid')}/{number}".encode()) % 32768
            files = {one: text for one, text in found.files.items() if one.startswith(volumes)}
            found = _played(words, {**known, "RANDOM": str(chance)}, files)
    except shell.NotPlayed:
        return None
    return found


def last_words(container: Container, found: shell.Outcome | None, exit_code: int) -> str:
    """Return the message of a container that ended by itself.

    It is what the container wrote into its termination log. If that is empty, the container failed
    and it says so, it is the end of the output. Rule: pkg/kubelet/kuberuntime, v1.36.
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
    """Return a container's environment, as far as the pod itself says it."""
    metadata, known = pod["metadata"], {"HOSTNAME": pod["metadata"].get("name", "")}
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
            known[one["name"]] = value
    return known
