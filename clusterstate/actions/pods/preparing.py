"""From a manifest to a pod that is ready to be inserted: metadata, admission, status, class.

The pods of a workload differ only in name, uid and times. The result of admission for the first one
is kept as a template, from which the others are made.
"""

import uuid
from datetime import datetime

import msgspec

from clusterstate import admission, catalogue
from clusterstate.actions.pods.classes import class_facts, known_classes
from clusterstate.actions.pods.clauses import POD
from clusterstate.actions.writing import object_meta
from clusterstate.admission.plugins import node_restriction
from clusterstate.admission.request import CREATE, User
from clusterstate.admission.validation.core import formats
from clusterstate.objects.rules import scheduling_class
from clusterstate.objects.values import document
from clusterstate.objects.values.actor import Actor
from clusterstate.objects.values.document import Overlay
from clusterstate.objects.values.meta import Manifest

_MAX_TEMPLATES = 2048

_LARGEST_TEMPLATE = 16 * 1024

_OWN_METADATA = frozenset({"name", "uid", "creationTimestamp"})


class PreparedPod(msgspec.Struct):
    """A pod on its way into the insert statement."""

    uid: uuid.UUID
    namespace: str
    name: str
    priority: int
    scheduler_name: str
    warnings: list[str]
    generated: bool
    text: str
    overlay: Overlay
    digest: bytes
    spec: str
    class_id: int | None
    actor: Actor | None = None
    """The user who creates it; ``None``: the one for whom this thread acts."""


class _Template(msgspec.Struct, frozen=True):
    """The result of admission, shared by pods that differ in name, uid and times only."""

    document: document.Template
    namespace: str
    priority: int
    scheduler_name: str
    warnings: list[str]
    digest: bytes
    spec: str


def prepare_pod(
    manifest: Manifest,
    namespace: str,
    now: datetime,
    user: User,
    context: catalogue.Catalogue,
) -> PreparedPod:
    """Return the pod as it will be stored.

    The pods of a workload differ in their names only, so the result of admission for one is used
    for the next.
    """
    of_agent = node_restriction.GROUP in user.groups  # its name decides what it may create
    # An account's automountServiceAccountToken can change without a new catalogue.
    is_alone = of_agent or context.settings.service_account_tokens
    key = None if is_alone else _template_key(manifest, namespace)
    if key is None:
        return prepare_without_template(manifest, namespace, now, user, context)[0]
    template: _Template | None = context.remembered.get(key)
    if template is not None:
        prepared = _fill(template, manifest["metadata"], now)
        if prepared is not None:
            return prepared
    prepared, metadata = prepare_without_template(manifest, namespace, now, user, context)
    if template is None and prepared.overlay is document.EMPTY:
        text = document.template(prepared.text, metadata)
        if text is not None:
            if len(context.remembered) >= _MAX_TEMPLATES:
                context.remembered.clear()
            context.remembered[key] = _Template(
                document=text,
                namespace=prepared.namespace,
                priority=prepared.priority,
                scheduler_name=prepared.scheduler_name,
                warnings=prepared.warnings,
                digest=prepared.digest,
                spec=prepared.spec,
            )
    return prepared


def _template_key(manifest: Manifest, namespace: str) -> bytes | None:
    """Return everything that admission of a new pod reads, except the name.

    ``None`` for pods whose name matters otherwise (claims of generic ephemeral volumes contain it)
    and for large ones.
    """
    metadata = manifest.get("metadata")
    if not metadata:
        return None
    shared = {key: value for key, value in metadata.items() if key not in _OWN_METADATA}
    rest = {key: value for key, value in manifest.items() if key not in ("metadata", "status")}
    key = msgspec.json.encode((namespace, shared, rest))
    return None if len(key) > _LARGEST_TEMPLATE or b'"ephemeral"' in key else key


def _fill(template: _Template, metadata: Manifest, now: datetime) -> PreparedPod | None:
    """Return a pod made from a template; ``None`` if its name is invalid."""
    name = metadata.get("name")
    generated = not name and bool(metadata.get("generateName"))
    if generated:
        name = object_meta.generated_name(metadata["generateName"])
    if not isinstance(name, str) or not name or formats.dns_subdomain(name):
        return None
    uid = object_meta.new_uid()
    cached_class = known_classes.get(template.digest)
    return PreparedPod(
        uid,
        template.namespace,
        name,
        template.priority,
        template.scheduler_name,
        list(template.warnings),
        generated,
        template.document.fill(object_meta.stamp(now), name, str(uid)),
        document.EMPTY,
        template.digest,
        template.spec,
        None if cached_class is None else cached_class.id,
    )


def prepare_without_template(
    manifest: Manifest,
    namespace: str,
    now: datetime,
    user: User,
    context: catalogue.Catalogue,
) -> tuple[PreparedPod, Manifest]:
    """Return the pod as it will be stored: metadata, admission, status, class; and its metadata."""
    uid = object_meta.new_uid()
    new, generated = object_meta.prepare(POD, namespace, manifest, now=now, uid=uid)
    admitted = admission.admit("Pod", CREATE, new, None, "", context, user)
    new = admitted.manifest
    digest, spec = scheduling_class.encode(new)
    cached_class = known_classes.get(digest)
    qos = cached_class.qos if cached_class is not None else class_facts(spec)[0]
    status: Manifest = {"phase": "Pending", "qosClass": qos}
    pod_spec = new["spec"]
    if pod_spec.get("schedulingGates"):
        # applySchedulingGatedCondition, pkg/registry/core/pod/strategy.go
        message = "Scheduling is blocked due to non-empty scheduling gates"
        status["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "SchedulingGated",
                "message": message,
                "lastTransitionTime": document.format_time(now),
            }
        ]
    new["status"] = status
    text, overlay = document.encode("Pod", new)
    if overlay.node_name:
        overlay = Overlay(node_name=overlay.node_name, scheduled_at=now)
    metadata = new["metadata"]
    prepared = PreparedPod(
        uid=uid,
        namespace=metadata["namespace"],
        name=metadata["name"],
        priority=pod_spec.get("priority") or 0,
        scheduler_name=pod_spec.get("schedulerName") or "default-scheduler",
        warnings=admitted.warnings,
        generated=generated,
        text=text,
        overlay=overlay,
        digest=digest,
        spec=spec,
        class_id=None if cached_class is None else cached_class.id,
    )
    return prepared, metadata
