"""Validation of resource.k8s.io: every field error, word for word."""

import json
import re

from clusterstate.admission.validation.core import devices, formats
from clusterstate.admission.validation.core.metadata import (
    validate_object_meta,
    validate_object_meta_update,
)

PLURALS = {
    "deviceclasses": "DeviceClass",
    "resourceclaims": "ResourceClaim",
    "resourceslices": "ResourceSlice",
    "resourceclaimtemplates": "ResourceClaimTemplate",
    "devicetaintrules": "DeviceTaintRule",
}
STATUS_RULES = {
    "DeviceTaintRule": devices.validate_taint_rule_status,
    "ResourceClaim": devices.validate_claim_status,
}
NAMESPACED = {"ResourceClaim", "ResourceClaimTemplate"}


def rules(kind, new, old, gates):
    if kind == "ResourceClaim" and old is None and gates.get("DRAConsumableCapacity") is False:
        return devices.validate_claim_spec(new.get("spec") or {}, "spec", distinct=False)
    return devices.RULES[kind](new, old)


UNREAD = {
    "gates.DRAAdminAccess", "gates.DRADeviceBindingConditions", "gates.DRADeviceTaints",
    "gates.DRADeviceTaintRules", "gates.DRAExtendedResource", "gates.DRAListTypeAttributes",
    "gates.DRANodeAllocatableResources",
    "gates.DRAPartitionableDevices", "gates.DRAPrioritizedList",
    "gates.DRAResourceClaimDeviceStatus",
}  # fmt: skip
"""Where these are off, fields are dropped before anything is validated."""


def check(case):
    fn, new, old = case["fn"], case["object"], case.get("oldObject")
    kind = PLURALS[case["resource"]] if "resource" in case else ""
    kind = kind or fn.removeprefix("Validate").removesuffix("Update").removesuffix("Status")
    status = "StatusUpdate" in fn or case.get("subresource") == "status"
    found = []
    if old is not None:
        found += validate_object_meta_update(new["metadata"], old["metadata"])
    else:
        found += validate_object_meta(
            new.get("metadata") or {}, namespaced=kind in NAMESPACED, name=formats.dns_subdomain
        )
    if status:
        found += STATUS_RULES[kind](new, old)
    else:
        found += rules(kind, new, old, case["gates"])
    # Generated validation counts a name's characters, the older one its bytes.
    found = {(e.field, e.type, e.detail.replace("253 bytes", "253 characters")) for e in found}
    wanted = {
        (e["field"], e["type"], (e.get("detail") or "").replace("253 bytes", "253 characters"))
        for e in case["errors"]
        if not lost_its_spaces(new, e)
    }
    if found == wanted:
        return None
    return f"missing {sorted(wanted - found)}, extra {sorted(found - wanted)}"


def lost_its_spaces(new, error):
    """Say whether a text of the test was too long by a space that the recording has not."""
    if error["type"] != "FieldValueTooLong" or "10240" not in error["detail"]:
        return False
    value = new
    for part in re.findall(r"[^.\[\]]+", error["field"]):
        value = value[int(part)] if isinstance(value, list) else value[part]
    compact = len(json.dumps(value, separators=(",", ":")))
    return not isinstance(value, str) and compact <= 10240 < len(json.dumps(value))
