"""``matchLabelKeys`` and ``mismatchLabelKeys`` become part of the label selector of a new pod.

A deployment can select "pods of my own revision" (``pod-template-hash``) without the value: the
value of the pod's own label is written into the selector on creation; later changes of the label
change nothing. Rule: pkg/registry/core/pod/strategy.go ``applyMatchLabelKeysAndMismatchLabelKeys``
and ``applySchedulingConstraints``, v1.36.
"""

from collections.abc import Iterator

from clusterstate.objects.values.meta import Manifest


def merge(pod: Manifest) -> None:
    """Add ``key In [value]`` (or ``NotIn``) for every such key that the pod's labels have."""
    spec = pod.get("spec") or {}
    affinity = spec.get("affinity")
    constraints = spec.get("topologySpreadConstraints")
    if not affinity and not constraints:
        return
    labels = (pod.get("metadata") or {}).get("labels") or {}
    for term in _terms(affinity or {}):
        _add(term, labels, "matchLabelKeys", "In")
        _add(term, labels, "mismatchLabelKeys", "NotIn")
    for constraint in constraints or ():
        _add(constraint, labels, "matchLabelKeys", "In")


def _terms(affinity: Manifest) -> Iterator[Manifest]:
    for name in ("podAffinity", "podAntiAffinity"):
        pod_affinity = affinity.get(name) or {}
        yield from pod_affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        for term in pod_affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
            yield term.get("podAffinityTerm") or {}


def _add(term: Manifest, labels: dict[str, str], field: str, operator: str) -> None:
    keys, selector = term.get(field), term.get("labelSelector")
    if not keys or selector is None:
        return
    added = [
        {"key": key, "operator": operator, "values": [labels[key]]} for key in keys if key in labels
    ]
    if added:
        selector["matchExpressions"] = [*(selector.get("matchExpressions") or ()), *added]
