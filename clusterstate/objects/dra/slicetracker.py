"""Slices with the taints of DeviceTaintRules: what the scheduler and the eviction see.

Rule: k8s.io/dynamic-resource-allocation ``resourceslice/tracker/tracker.go``, v1.36; which devices
a rule without a selector means as of v1.38. The taints of rules come after a device's own, rules in
the order of their names.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from clusterstate.objects.values.meta import Manifest


def rule_applies(rule: Manifest, driver: str, pool: str, device: str) -> bool:
    """Return whether a rule taints a device; fields absent from its selector match every device.

    Without a selector it taints none (resource/v1 ``DeviceTaintRuleSpec.deviceSelector``). A rule
    with an effect of None, or without, taints all the same; nothing acts on it.
    """
    selector: Mapping[str, Any] | None = (rule.get("spec") or {}).get("deviceSelector")
    return selector is not None and all(
        selector.get(field) in (None, value)
        for field, value in (("driver", driver), ("pool", pool), ("device", device))
    )


def patched_slice(manifest: Manifest, rules: Sequence[Manifest]) -> Manifest:
    """Return the slice with the taints of rules on its devices; itself where none applies."""
    spec = manifest["spec"]
    pool = (spec.get("pool") or {}).get("name", "")
    devices, changed = [], False
    for device in spec.get("devices") or ():
        taints = [
            rule["spec"]["taint"]
            for rule in rules
            if rule_applies(rule, spec.get("driver", ""), pool, device["name"])
        ]
        changed = changed or bool(taints)
        devices.append({**device, "taints": [*(device.get("taints") or ()), *taints]} if taints
                       else device)  # fmt: skip
    return {**manifest, "spec": {**spec, "devices": devices}} if changed else manifest


def patched_slices(slices: Iterable[Manifest], rules: Iterable[Manifest]) -> list[Manifest]:
    """Return all slices with the taints of the rules."""
    ordered = sorted(rules, key=lambda rule: str(rule["metadata"]["name"]))
    return [patched_slice(one, ordered) for one in slices] if ordered else list(slices)
