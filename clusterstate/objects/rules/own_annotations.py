"""Annotations of this service: which kinds have them, and which values mean something.

One that nobody reads there, or whose value cannot be read, is stored with a warning that names it.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from clusterstate.objects.rules.disruption import UNIT
from clusterstate.objects.values.numbers import annotated_number
from clusterstate.objects.values.pod_group import LOST_WORK, PREFERRED_TOPOLOGY

READY: Final = "hollow.stowage.dev/ready"
"""``false``: the pod is not ready."""
RUN: Final = "hollow.stowage.dev/run-seconds"
"""How long its containers run."""
EXIT: Final = "hollow.stowage.dev/exit-code"
"""How they end after that."""
STOP: Final = "hollow.stowage.dev/stop-seconds"
"""How long the pod takes to stop once it is deleted; its grace period, at most."""
SINCE: Final = "stowage.dev/provisioning-since"
FAILED: Final = "stowage.dev/provisioning-failures"
"""What the hollow driver keeps in a claim: since when it makes the volume, how often it failed."""
SUBMISSION: Final = "stowage.dev/submission"
TRACE: Final = "stowage.dev/traceparent"
PROVENANCE: Final = "stowage.dev/from-runtime-class"
DEDICATED: Final = "scheduling.stowage.dev/dedicated"
LIMITS_ANTI_AFFINITY: Final = "admission.stowage.dev/limit-pod-hard-anti-affinity-topology"

_Reads = Callable[[str], object]
"""Returns ``None`` for a text that says nothing."""
_DOMAIN: Final = "stowage.dev"


_READ: Final[Mapping[str, Mapping[str, _Reads]]] = {
    "Pod": {
        READY: str,
        RUN: annotated_number,
        EXIT: annotated_number,
        STOP: annotated_number,
        TRACE: str,
        PROVENANCE: str,
    },
    "PersistentVolumeClaim": {SINCE: str, FAILED: str},
    "PodDisruptionBudget": {UNIT: str},
    "PodGroup": {LOST_WORK: str, PREFERRED_TOPOLOGY: str},
    "Namespace": {DEDICATED: str, LIMITS_ANTI_AFFINITY: str},
}
_ANYWHERE: Final[Mapping[str, _Reads]] = {SUBMISSION: str}


def warnings(kind: str, annotations: Mapping[str, str], path: str) -> Iterator[str]:
    """Yield a text for each annotation of this service that has no effect on a kind.

    ``path``: of the annotations.
    """
    for name, text in annotations.items():
        domain, slash, _ = name.partition("/")
        if not slash or not (domain == _DOMAIN or domain.endswith(f".{_DOMAIN}")):
            continue
        reads = _READ.get(kind, {}).get(name) or _ANYWHERE.get(name)
        if reads is None:
            yield f"{path}[{name}]: this annotation has no effect on a {kind}"
        elif reads(text) is None:
            yield f'{path}[{name}]: "{text}" is not a number of 0 or more, so it is ignored'
