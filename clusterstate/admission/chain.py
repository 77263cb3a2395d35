"""The order of admission: defaults, mutating plugins, validation, validating plugins."""

from functools import partial

import msgspec

from clusterstate.admission.defaults import set_defaults
from clusterstate.admission.plugins import (
    certificate_requests,
    dedicated_nodes,
    default_classes,
    default_toleration_seconds,
    device_access,
    extended_resource_toleration,
    limit_pod_hard_anti_affinity_topology,
    limit_ranger,
    match_label_keys,
    namespace_lifecycle,
    node_restriction,
    persistent_volume_claim_resize,
    pod_resize,
    pod_toleration_restriction,
    priority,
    runtime_class,
    service_account,
    storage_object_in_use_protection,
    taint_nodes_by_condition,
)
from clusterstate.admission.request import CREATE, DELETE, Context, Request, User
from clusterstate.admission.validation import validate
from clusterstate.admission.warnings import unknown_profile, warnings_for
from clusterstate.objects.registry import quantity_places
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.values.errors import Invalid
from clusterstate.objects.values.meta import Manifest, strip_nulls
from clusterstate.objects.values.remembered import remembered


class AdmittedObject(msgspec.Struct, frozen=True):
    """The manifest to store, and warnings for the client (one Warning header each)."""

    manifest: Manifest
    warnings: list[str]


def admit(
    kind: str,
    operation: str,
    manifest: Manifest | None,
    old_manifest: Manifest | None,
    subresource: str | None,
    context: Context,
    user: User,
) -> AdmittedObject:
    """Return the manifest to store: defaulted, mutated by the plugins, and valid.

    ``kind`` is the kind that the path names, ``operation`` CREATE, UPDATE or DELETE,
    ``subresource`` empty or ``status``, ``resize``, ``binding``, ``eviction`` ... ``manifest`` is
    not changed; a deletion has none. Queries only through ``context``.

    Raises:
        Invalid: with every wrong field.
        Forbidden, NotFound, Conflict, BadRequest: from the first plugin that refuses.
    """
    of_template = kind in _DEFAULTED and operation == CREATE and not subresource
    new_pod = kind == "Pod" and of_template
    if manifest is None:
        new: Manifest = {}
    elif of_template:
        new = _defaulted(kind, manifest)
    else:
        new = strip_nulls(manifest)
        quantity_places.make_canonical(kind, new)
    meta = (new if manifest is not None else old_manifest or {}).get("metadata") or {}
    request = Request(
        kind=kind,
        operation=operation,
        manifest=new,
        old=old_manifest,
        subresource=subresource or "",
        namespace=meta.get("namespace") or "",
        name=meta.get("name") or "",
        user=user,
        context=context,
        warnings=[],
    )
    if operation == DELETE:
        namespace_lifecycle.admit(request)
        if context.settings.node_restriction:
            node_restriction.admit(request)
        return AdmittedObject(old_manifest or {}, request.warnings)

    if not of_template and not (kind == "Pod" and subresource in _OTHER_BODIES):
        set_defaults(kind, new)
    if old_manifest is not None:
        quantity_places.keep_equal(kind, new, old_manifest)
    run_mutating(request)
    if new_pod:
        match_label_keys.merge(new)
    errors = validate(kind, operation, new, old_manifest, request.subresource, context.settings)
    if errors and old_manifest is not None:
        # An earlier version may have stored it without a default, which must not be added now.
        old = strip_nulls(old_manifest)
        set_defaults(kind, old)
        errors = validate(kind, operation, new, old, request.subresource, context.settings)
    errors = [*quantity_places.impossible_times(kind, new), *errors]
    if errors:
        raise Invalid(kind, request.display_name(), errors, KINDS[kind].group)
    run_validating(request)
    request.warnings.extend(
        warnings_for(
            kind, new, old_manifest,
            mounts_tokens=context.settings.service_account_tokens,
            compatibility=context.settings.compatibility,
        )
    )  # fmt: skip
    if new_pod and (warning := unknown_profile(new["spec"], context.settings.profiles)):
        request.warnings.append(f"spec.schedulerName: {warning}")
    return AdmittedObject(new, request.warnings)


# Subresources of a pod whose body is not a pod.
_OTHER_BODIES = frozenset({"binding", "eviction"})


def _defaulted(kind: str, manifest: Manifest) -> Manifest:
    """Return a copy of a new object without nulls, with canonical amounts and with defaults.

    The defaults of a spec depend on the spec alone, and what is made from one template has equal
    specs, so the completed spec is cached.
    """
    new: Manifest = {
        field: strip_nulls(value)
        for field, value in manifest.items()
        if value is not None and field != "spec"
    }
    quantity_places.make_canonical(kind, new)
    encoded = msgspec.json.encode(manifest.get("spec") or {})
    new["spec"] = msgspec.json.decode(_DEFAULTED[kind](encoded))
    return new


def _default_spec(kind: str, spec: bytes) -> bytes:
    new = {"spec": strip_nulls(msgspec.json.decode(spec))}
    quantity_places.make_canonical(kind, new)
    set_defaults(kind, new)
    return msgspec.json.encode(new["spec"])


_DEFAULTED = {
    kind: remembered(4096, longest=16_384)(partial(_default_spec, kind))
    for kind in ("Pod", "ResourceClaim")
}
"""For kinds that templates make many of: the spec with its defaults."""


def run_mutating(request: Request) -> None:
    """Run the mutating plugins in Kubernetes' recommended order (kubeapiserver/options)."""
    settings = request.context.settings
    namespace_lifecycle.admit(request)
    kind = request.kind
    if kind == "Pod":
        if settings.limit_ranger:
            limit_ranger.admit(request)
        if settings.node_restriction:
            node_restriction.admit(request)
        if request.subresource:
            return
        if settings.service_account:
            service_account.admit(request)
        if settings.priority:
            priority.admit(request)
        if settings.default_toleration_seconds:
            default_toleration_seconds.admit(request)
        if settings.pod_toleration_restriction:
            pod_toleration_restriction.admit(request)
        if settings.extended_resource_toleration:
            extended_resource_toleration.admit(request)
        if settings.dedicated_nodes:
            dedicated_nodes.admit(request)
        if settings.runtime_class:
            runtime_class.admit(request)
    elif kind == "Node":
        # Only agents get the taint: a node that a person or a program registers has no agent to
        # remove it.
        if settings.taint_nodes_by_condition and node_restriction.node_of(request.user):
            taint_nodes_by_condition.admit(request)
        if settings.node_restriction:
            node_restriction.admit(request)
    elif kind in default_classes.KINDS and not request.subresource:
        default_classes.admit(request)
    elif kind in device_access.KINDS and not request.subresource:
        device_access.admit(request)
    elif kind in priority.GROUPS and settings.priority:
        priority.admit(request)
    if kind in storage_object_in_use_protection.KINDS and not request.subresource:
        storage_object_in_use_protection.admit(request)
    if kind in node_restriction.OTHER_KINDS and settings.node_restriction:
        node_restriction.admit(request)
    if kind == "CertificateSigningRequest":
        certificate_requests.admit(request)


def run_validating(request: Request) -> None:
    """Run the plugins that change nothing, after validation."""
    settings = request.context.settings
    if settings.limit_ranger and request.kind in ("Pod", "PersistentVolumeClaim"):
        limit_ranger.validate(request)
    if request.kind == persistent_volume_claim_resize.KIND:
        persistent_volume_claim_resize.validate(request)
    if request.kind == "Pod" and request.subresource == "resize":
        pod_resize.validate(request)
    elif request.kind == "Pod" and not request.subresource:
        affinity = (request.manifest.get("spec") or {}).get("affinity")
        if affinity and limit_pod_hard_anti_affinity_topology.is_enabled(request):
            limit_pod_hard_anti_affinity_topology.validate(request)
        if settings.pod_toleration_restriction:
            pod_toleration_restriction.validate(request)
        if settings.runtime_class:
            runtime_class.validate(request)
    elif request.kind == "PriorityClass" and settings.priority:
        priority.validate(request)
