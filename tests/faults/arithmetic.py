"""What Kubernetes' words mean, worked out again from its documentation alone.

The checkers judge the service by this module, so it shares no code with the service: quantities,
requests, selectors, tolerations and RFC 3339 times. Everything takes decoded manifests.
"""

import calendar
import functools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

Manifest = Mapping[str, Any]
Amounts = dict[str, int]
"""CPU in thousandths, everything else in whole units, by resource name."""

_SUFFIXES = {
    "": Fraction(1), "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000),
    "k": Fraction(10**3), "M": Fraction(10**6), "G": Fraction(10**9), "T": Fraction(10**12),
    "P": Fraction(10**15), "E": Fraction(10**18),
    "Ki": Fraction(2**10), "Mi": Fraction(2**20), "Gi": Fraction(2**30), "Ti": Fraction(2**40),
    "Pi": Fraction(2**50), "Ei": Fraction(2**60),
}  # fmt: skip
_QUANTITY = re.compile(r"([+-]?[0-9]*\.?[0-9]+|[+-]?[0-9]+\.)(?:[eE]([+-]?[0-9]+))?([a-zA-Z]*)")


@functools.lru_cache(maxsize=10_000)
def quantity(text: str | float) -> Fraction:
    """Return a quantity as a number."""
    found = _QUANTITY.fullmatch(str(text))
    if found is None:
        raise ValueError(f"no quantity: {text!r}")
    number, exponent, suffix = found.groups()
    return Fraction(number) * Fraction(10) ** int(exponent or 0) * _SUFFIXES[suffix]


def amounts(quantities: Manifest) -> Amounts:
    """Return quantities by resource in whole units, rounded up."""
    return {
        name: math.ceil(quantity(value) * (1000 if name == "cpu" else 1))
        for name, value in quantities.items()
    }


def add(total: Amounts, other: Amounts, sign: int = 1) -> None:
    """Add the other amounts to the total, in place."""
    for name, value in other.items():
        total[name] = total.get(name, 0) + sign * value


def requests(pod: Manifest) -> Amounts:
    """Return what a pod takes of its node: the containers together, overhead, and one pod.

    Init containers run before, one after another, so that the largest of them counts if it is
    larger than the containers together.
    """
    spec = pod["spec"]
    total: Amounts = {}
    for container in spec.get("containers") or ():
        add(total, _asked(container))
    for container in spec.get("initContainers") or ():
        for name, value in _asked(container).items():
            total[name] = max(total.get(name, 0), value)
    add(total, amounts(spec.get("overhead") or {}))
    total["pods"] = 1
    return total


def _asked(container: Manifest) -> Amounts:
    resources = container.get("resources") or {}
    return amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def seconds(rfc3339: str | None) -> float | None:
    """Return a time as seconds since 1970, or None for none."""
    if not rfc3339:
        return None
    found = re.fullmatch(r"(\d+)-(\d+)-(\d+)T(\d+):(\d+):(\d+)(\.\d+)?Z", rfc3339)
    if found is None:
        raise ValueError(f"no time: {rfc3339!r}")
    whole = calendar.timegm(tuple(int(part) for part in found.groups()[:6]))
    return whole + float(found.group(7) or 0)


# Labels ----------------------------------------------------------------------------------------


def _requirement(expression: Manifest, labels: Mapping[str, str]) -> bool:
    key, operator = expression["key"], expression["operator"]
    values: Sequence[str] = expression.get("values") or ()
    if operator == "In":
        return labels.get(key) in values if key in labels else False
    if operator == "NotIn":
        return key not in labels or labels[key] not in values
    if operator == "Exists":
        return key in labels
    if operator == "DoesNotExist":
        return key not in labels
    if key not in labels or not re.fullmatch(r"-?\d+", labels[key]):
        return False
    difference = int(labels[key]) - int(values[0])
    return difference > 0 if operator == "Gt" else difference < 0


def selects(selector: Manifest | None, labels: Mapping[str, str]) -> bool:
    """Return whether a label selector matches; none matches nothing, an empty one everything."""
    if selector is None:
        return False
    wanted = selector.get("matchLabels") or {}
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        _requirement(one, labels) for one in selector.get("matchExpressions") or ()
    )


def matches_node(spec: Manifest, node: Manifest) -> bool:
    """Return whether nodeSelector and required node affinity accept the node."""
    labels = node["metadata"].get("labels") or {}
    wanted = spec.get("nodeSelector") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return required is None or matches_terms(required.get("nodeSelectorTerms") or (), node)


def matches_terms(terms: Sequence[Manifest], node: Manifest) -> bool:
    """Return whether one of the terms of a node selector accepts the node."""
    labels = node["metadata"].get("labels") or {}
    fields = {"metadata.name": node["metadata"]["name"]}
    return any(
        (term.get("matchExpressions") or term.get("matchFields"))
        and all(_requirement(one, labels) for one in term.get("matchExpressions") or ())
        and all(_requirement(one, fields) for one in term.get("matchFields") or ())
        for term in terms
    )


# Taints ----------------------------------------------------------------------------------------


def tolerates(toleration: Manifest, taint: Manifest) -> bool:
    """Return whether a toleration matches a taint."""
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    operator = toleration.get("operator") or "Equal"
    if not toleration.get("key"):
        return operator == "Exists"
    if toleration["key"] != taint["key"]:
        return False
    return operator == "Exists" or (toleration.get("value") or "") == (taint.get("value") or "")


def repelled(spec: Manifest, taints: Iterable[Manifest]) -> list[str]:
    """Return the taints that keep a new pod away."""
    return [
        f"{taint['key']}:{taint['effect']}"
        for taint in taints
        if taint["effect"] in ("NoSchedule", "NoExecute")
        and not any(tolerates(one, taint) for one in spec.get("tolerations") or ())
    ]


def taint_due(spec: Manifest, taints: Iterable[Manifest], bound_at: float) -> float | None:
    """Return when a bound pod has to leave for its node's taints; None means never.

    An untolerated NoExecute taint is due when it was added. A tolerated one is due the seconds of
    the first toleration that matches it after the later of the taint and the binding.
    """
    found: list[float] = []
    for taint in taints:
        if taint["effect"] != "NoExecute":
            continue
        start = max(seconds(taint.get("timeAdded")) or 0.0, bound_at)
        matching = (one for one in spec.get("tolerations") or () if tolerates(one, taint))
        first = next(matching, None)
        if first is None:
            found.append(start)
        elif first.get("tolerationSeconds") is not None:
            found.append(start + max(0, first["tolerationSeconds"]))
    return min(found, default=None)
