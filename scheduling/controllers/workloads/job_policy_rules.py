"""A Job's podFailurePolicy and successPolicy.

Pure. Rules: pkg/controller/job (``pod_failure_policy.go``, ``success_policy.go``,
``indexed_job_utils.go``, ``backoff_utils.go``), v1.36.
"""

from typing import Final

import msgspec

from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.numbers import natural
from scheduling.controllers.workloads.job_indexes import Indexes
from scheduling.controllers.workloads.pods import OwnedPod

INDEX: Final = "batch.kubernetes.io/job-completion-index"
FAILURES: Final = "batch.kubernetes.io/job-index-failure-count"
IGNORED: Final = "batch.kubernetes.io/job-index-ignored-failure-count"


class Judgement(msgspec.Struct, frozen=True):
    """The effect of a failed pod on its Job.

    ``counts``: it counts as a failure for the limits. ``fails_index``: its index is not tried
    again. ``fails_job``: why the whole Job fails, empty if it does not.
    """

    counts: bool = True
    fails_index: bool = False
    fails_job: str = ""


def only_replaces_failed(spec: Manifest) -> bool:
    """Return whether a terminating pod is neither failed nor replaced until it has ended."""
    return spec.get("podReplacementPolicy") == "Failed" or spec.get("podFailurePolicy") is not None


def is_failed(spec: Manifest, pod: OwnedPod) -> bool:
    """Return whether a pod counts as failed (``isPodFailed``).

    A deleted pod may never reach a failed phase, so it counts as failed, too, unless the Job waits
    for how its pods end.
    """
    if pod.phase == "Failed":
        return True
    return pod.is_leaving and pod.phase != "Succeeded" and not only_replaces_failed(spec)


def judge(spec: Manifest, pod: OwnedPod, namespace: str) -> Judgement:
    """Return the effect of a failed pod by the first matching rule (``matchPodFailurePolicy``)."""
    policy: Manifest = spec.get("podFailurePolicy") or {}
    for number, rule in enumerate(policy.get("rules") or ()):
        action = rule.get("action")
        found = ""
        if (codes := rule.get("onExitCodes")) is not None:
            found = _ended_as(codes, pod, namespace)
        elif (patterns := rule.get("onPodConditions")) is not None:
            types = [type_ for type_, status in pod.conditions
                     if {"type": type_, "status": status} in _plain(patterns)]  # fmt: skip
            found = f"Pod {namespace}/{pod.name} has condition {types[0]}" if types else ""
        if found:
            return Judgement(
                counts=action != "Ignore",
                fails_index=action == "FailIndex",
                fails_job=f"{found} matching {action} rule at index {number}"
                if action == "FailJob"
                else "",
            )
    return Judgement()


def _plain(patterns: list[Manifest]) -> list[Manifest]:
    return [{"type": one.get("type"), "status": one.get("status") or "True"} for one in patterns]


def _ended_as(rule: Manifest, pod: OwnedPod, namespace: str) -> str:
    """Return the container that ended with an exit code of a rule, empty if none did."""
    values, within = rule.get("values") or (), rule.get("operator") == "In"
    for name, code in pod.exit_codes:
        if rule.get("containerName") not in (None, name) or code == 0:
            continue
        if (code in values) == within:
            return f"Container {name} for pod {namespace}/{pod.name} failed with exit code {code}"
    return ""


# Indexes ------------------------------------------------------------------------------------------


def index_of(pod: OwnedPod) -> int | None:
    """Return the completion index of a pod, ``None`` if it has none."""
    return natural(pod.annotations.get(INDEX, ""))


def failures_of(pod: OwnedPod) -> tuple[int, int]:
    """Return how often a pod's index had failed before the pod: counted, and ignored failures."""
    return tuple(natural(pod.annotations.get(key, "")) or 0 for key in (FAILURES, IGNORED))  # type: ignore[return-value]  # there are two


def failures_after(spec: Manifest, pod: OwnedPod, namespace: str) -> tuple[int, int]:
    """Return how often an index has failed, including this pod (``getNewIndexFailureCounts``)."""
    counted, ignored = failures_of(pod)
    if judge(spec, pod, namespace).counts:
        return counted + 1, ignored
    return counted, ignored + 1


def fails_index(spec: Manifest, pod: OwnedPod, namespace: str) -> bool:
    """Return whether a failed pod is the last attempt for its index (``isIndexFailed``)."""
    found = judge(spec, pod, namespace)
    if found.fails_index:
        return True
    limit: int = spec["backoffLimitPerIndex"]
    return found.counts and failures_of(pod)[0] >= limit


def success(spec: Manifest, succeeded: Indexes) -> str:
    """Return the success rule that is met, empty if none (``matchSuccessPolicy``)."""
    policy: Manifest = spec.get("successPolicy") or {}
    completions = spec.get("completions") or 0
    for number, rule in enumerate(policy.get("rules") or ()):
        indexes, count = rule.get("succeededIndexes"), rule.get("succeededCount")
        there = succeeded.number
        if indexes is not None:
            named = Indexes.parse(indexes, completions)
            there = succeeded.common(named)
            count = named.number if count is None else count
        if succeeded.spans and count is not None and there >= count:
            return f"Matched rules at index {number}"
    return ""
