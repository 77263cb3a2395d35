"""Area podgroupvalidation: scheduling.k8s.io of 1.36, every field error word for word.

The objects are PodGroups and Workloads of v1alpha2; they are converted as the API does it, judged
by the rules of 1.36, and the paths of the errors named as v1alpha2 names them.
"""

from clusterstate.admission.validation import kinds
from clusterstate.admission.validation.core import formats
from clusterstate.admission.validation.core.metadata import (
    validate_object_meta,
    validate_object_meta_update,
)
from clusterstate.admission.validation.workloads import pod_groups
from clusterstate.objects.registry import older_pod_groups
from tests.conformance.cluster_cases import Case

_KINDS = {"podgroups": "PodGroup", "workloads": "Workload"}
_NAMES = {
    "spec.workloadRef.templateName": "spec.podGroupTemplateRef.workload.podGroupTemplateName",
    "spec.workloadRef.workloadName": "spec.podGroupTemplateRef.workload.workloadName",
    "spec.workloadRef": "spec.podGroupTemplateRef",
}


UNREAD = {"gates.DRAWorkloadResourceClaims", "gates.GangScheduling", "gates.GenericWorkload"}
"""Where these are off, fields are dropped before anything is validated."""


def check(case: Case) -> str | None:
    """Return what differs, None if nothing does."""
    fn, kind = case["fn"], _KINDS.get(case.get("resource", ""), "")
    kind = kind or fn.removeprefix("Validate").removesuffix("Update").removesuffix("Status")
    new, old = case["object"], case.get("oldObject")
    if kind != "PriorityClass":
        new = older_pod_groups.stored(new, "v1alpha2")
        old = older_pod_groups.stored(old, "v1alpha2")
    status = "StatusUpdate" in fn or case.get("subresource") == "status"
    meta = new.get("metadata") or {}
    if old is not None:
        found = validate_object_meta_update(meta, old.get("metadata") or {})
    else:
        namespaced = kind != "PriorityClass"
        found = validate_object_meta(meta, namespaced=namespaced, name=formats.dns_subdomain)
    found += errors(kind, new, old, case, status=status)
    told = sorted((_NAMES.get(e.field, e.field), e.type, in_bytes(e.detail)) for e in found)
    wanted = sorted((e["field"], e["type"], in_bytes(e["detail"] or "")) for e in case["errors"])
    if told == wanted:
        return None
    missing = [one for one in wanted if one not in told]
    return f"missing {missing}, extra {[one for one in told if one not in wanted]}"


def errors(kind, new, old, case, *, status):
    if status:
        return pod_groups.validate_pod_group_status(new, old)
    if kind == "PriorityClass":
        return kinds._priority_class(new, old)
    # A validator by itself is what is left beside the generated one, which knows the gates.
    gates = {} if case["fn"].startswith("strategy") else _ALL
    gates = gates or {name: bool(case["gates"].get(name)) for name in _ALL}
    rules = pod_groups.Rules(
        topology=gates["TopologyAwareWorkloadScheduling"],
        preemption=gates["WorkloadAwarePreemption"],
        of_1_36=True,
    )
    judge = pod_groups.validate_workload if kind == "Workload" else pod_groups.validate_pod_group
    return judge(new, old, rules)


_ALL = {"TopologyAwareWorkloadScheduling": True, "WorkloadAwarePreemption": True}


def in_bytes(detail: str) -> str:
    """Generated validation counts a name's bytes, the older one its characters."""
    return detail.replace(" bytes", " characters")
