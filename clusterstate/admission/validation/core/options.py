"""Options of the validation of pods, as Kubernetes' ``PodValidationOptions``.

Most options allow an update of an object that was valid once, if the invalid part does not change;
some are feature gates. ``CURRENT`` has the values for new pods in v1.36.
"""

from typing import Final

import msgspec

from clusterstate.admission.validation.core import formats
from clusterstate.admission.validation.core.metadata import validate_label_selector
from clusterstate.objects.values.meta import Manifest


class PodOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options, with the names and meanings of PodValidationOptions; all are off by default."""

    allow_invalid_pod_deletion_cost: bool = False
    allow_invalid_label_value_in_selector: bool = False
    allow_indivisible_huge_pages_values: bool = False
    allow_invalid_topology_spread_constraint_label_selector: bool = False
    allow_non_local_projected_token_path: bool = False
    allow_namespaced_sysctls_for_host_net_and_host_ipc: bool = False
    resource_is_pod: bool = False
    allow_relaxed_environment_variable_validation: bool = False
    allow_relaxed_dns_search_validation: bool = False
    allow_pod_lifecycle_sleep_action_zero_value: bool = False
    allow_only_recursive_se_linux_change_policy: bool = False
    pod_level_resources_enabled: bool = False
    allow_sidecar_resize_policy: bool = False
    allow_invalid_label_value_in_required_node_affinity: bool = False
    allow_match_label_keys_in_pod_topology_spread: bool = False
    allow_match_label_keys_in_pod_topology_spread_selector_merge: bool = False
    old_pod_violates_match_label_keys_validation: bool = False
    old_pod_violates_legacy_match_label_keys_validation: bool = False
    allow_container_restart_policy_rules: bool = False
    allow_restart_all_containers: bool = False
    allow_user_namespaces_with_volume_devices: bool = False
    allow_taint_toleration_comparison_operators: bool = False
    allow_empty_image_reference: bool = False
    strict_ip_cidr: bool = False


CURRENT: Final = PodOptions(
    resource_is_pod=True,
    allow_namespaced_sysctls_for_host_net_and_host_ipc=False,
    allow_relaxed_environment_variable_validation=True,
    allow_relaxed_dns_search_validation=True,
    allow_pod_lifecycle_sleep_action_zero_value=True,
    pod_level_resources_enabled=True,
    allow_sidecar_resize_policy=True,
    allow_match_label_keys_in_pod_topology_spread=True,
    allow_match_label_keys_in_pod_topology_spread_selector_merge=True,
    allow_container_restart_policy_rules=True,
    allow_restart_all_containers=True,
    strict_ip_cidr=True,
)
CURRENT_TEMPLATE: Final = msgspec.structs.replace(CURRENT, resource_is_pod=False)


def tolerating(old: Manifest) -> PodOptions:
    """Return ``CURRENT``, allowing newly forbidden values that the stored pod ``old`` already has.

    Otherwise such a pod could not be repaired or finalised: every update would fail. Rule:
    pkg/api/pod/util.go ``GetValidationOptionsFromPodSpecAndMeta``.
    """
    spec = old.get("spec") or {}
    affinity = spec.get("affinity") or {}
    tolerations = spec.get("tolerations") or ()
    constraints = spec.get("topologySpreadConstraints") or ()
    own_users = spec.get("hostUsers") is False
    if (
        not affinity
        and not constraints
        and not own_users
        and not any(t.get("operator") in ("Lt", "Gt") for t in tolerations)
    ):
        return CURRENT
    required = (affinity.get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or {}
    values_wrong = any(
        formats.label_value(value)
        for term in required.get("nodeSelectorTerms") or ()
        for expression in term.get("matchExpressions") or ()
        for value in expression.get("values") or ()
    )
    selectors_wrong = any(
        validate_label_selector(constraint.get("labelSelector"), "") for constraint in constraints
    )
    return msgspec.structs.replace(
        CURRENT,
        allow_invalid_label_value_in_required_node_affinity=values_wrong,
        allow_invalid_topology_spread_constraint_label_selector=selectors_wrong,
        old_pod_violates_match_label_keys_validation=any(
            c.get("matchLabelKeys") for c in constraints
        ),
        allow_taint_toleration_comparison_operators=any(
            t.get("operator") in ("Lt", "Gt") for t in tolerations
        ),
        allow_user_namespaces_with_volume_devices=own_users
        and any(
            container.get("volumeDevices")
            for field in ("initContainers", "containers", "ephemeralContainers")
            for container in spec.get(field) or ()
        ),
    )
