"""Strategies: rules of a kind for writing its manifests.

Pure, as admission is: a strategy gets the stored and the wanted manifest and no database. Rules:
apiserver ``rest.RESTCreateStrategy`` and ``rest.RESTUpdateStrategy``, and the strategies in
``pkg/registry/*/strategy.go``, v1.36.
"""

from typing import Final

from clusterstate.objects.registry import devices
from clusterstate.objects.values import addresses
from clusterstate.objects.values.errors import NOT_SUPPORTED, BadRequest, FieldError, Invalid
from clusterstate.objects.values.labels import is_valid_label_value
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.node import HOSTNAME
from clusterstate.objects.values.numbers import natural

PHASES: Final = ("Pending", "Running", "Succeeded", "Failed", "Unknown")
"""The phases of a pod."""


class Strategy:
    """The strategy of kinds without rules of their own."""

    kept_by_status: tuple[str, ...] = ()
    """Members of ``metadata`` that a write of the status leaves as they are."""

    def prepare_for_create(self, new: Manifest) -> None:
        """Set what the server sets in a new object, in place; ``metadata`` is a copy already."""

    def prepare_for_update(self, new: Manifest, old: Manifest, subresource: str) -> None:
        """Keep in ``new``, in place, what a write to this subresource does not change.

        ``new`` and its ``metadata`` are copies; values below them are shared with other objects.
        """

    def stamp(self, new: Manifest, now: str) -> None:
        """Set the time in ``new``, in place, where it is missing."""

    def canonicalize(self, new: Manifest, old: Manifest) -> None:
        """Bring an admitted update into its stored form, in place.

        Raises:
            StatusError: the database would refuse it.
        """

    def is_kept(self, manifest: Manifest) -> bool:
        """Return whether an object that is being deleted has to stay for the time being."""
        return bool(manifest["metadata"].get("finalizers"))

    def begin_deletion(self, new: Manifest) -> None:
        """Complete, in place, an object with a ``deletionTimestamp`` that finalizers keep."""
        new["metadata"]["deletionGracePeriodSeconds"] = 0

    def is_logged(self, new: Manifest, old: Manifest) -> bool:
        """Return whether an update is written to the change log."""
        return True

    def is_heartbeat(self, new: Manifest, old: Manifest) -> bool:
        """Return whether an update is only a heartbeat."""
        return False

    def is_another_generation(self, new: Manifest, old: Manifest) -> bool:
        """Return whether an update is counted in ``metadata.generation``, if the kind counts."""
        return bool(old.get("spec") != new.get("spec"))

    def moves_admission(self, new: Manifest, old: Manifest) -> bool:
        """Return whether an update of a kind in the catalogue may change what is admitted."""
        return True

    def moves_placement(self, new: Manifest, old: Manifest) -> bool:
        """Return whether an update may invalidate placements that were decided before it."""
        return False


class PodStrategy(Strategy):
    """``pkg/registry/core/pod/strategy.go``."""

    kept_by_status = ("ownerReferences",)

    def prepare_for_create(self, new: Manifest) -> None:
        """A new pod is pending, whatever the client says."""
        new["status"] = {"phase": "Pending"}

    def prepare_for_update(self, new: Manifest, old: Manifest, subresource: str) -> None:
        """Keep the QoS class and the observed generations that a new status leaves out.

        The QoS class cannot be changed. A resize changes resources, and nothing else.
        """
        if subresource == "status":
            before = old.get("status") or {}
            new["status"] = {"qosClass": before.get("qosClass"), **(new.get("status") or {})}
            _agree_on_addresses(new["status"])
            _keep_observed(new["status"], before)
        elif subresource == "resize":
            new["spec"] = _resized(new.get("spec") or {}, old.get("spec") or {})

    def canonicalize(self, new: Manifest, old: Manifest) -> None:
        """Refuse an unknown phase; a pod without gates cannot be reported as gated."""
        phase = (new.get("status") or {}).get("phase") or "Pending"
        if phase not in PHASES:
            phases = ", ".join(f'"{one}"' for one in PHASES)
            error = FieldError(NOT_SUPPORTED, "status.phase", phase, f"supported values: {phases}")
            raise Invalid("Pod", new["metadata"]["name"], [error])
        drop_gated_condition(new, old)

    def is_kept(self, manifest: Manifest) -> bool:
        """A pod stays for its finalizers and for its grace period, which its agent ends."""
        metadata = manifest["metadata"]
        return bool(metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds"))


def _resized(new_spec: Manifest, old: Manifest) -> Manifest:
    """Return a pod's stored spec with the resources and the resize policies that are wanted.

    Where containers were added, removed, renamed or reordered the wanted ones are returned as they
    are, for validation to refuse. Rule: ``dropNonResizeUpdates``, pkg/registry/core/pod, v1.36.
    """
    spec = dict(old)
    keep(spec, new_spec, "resources")
    for field in ("containers", "initContainers"):
        containers, before = new_spec.get(field) or [], old.get(field) or []
        if [one.get("name") for one in containers] != [one.get("name") for one in before]:
            spec[field] = containers
        elif before:
            spec[field] = [dict(one) for one in before]
            for one, requested in zip(spec[field], containers, strict=True):
                keep(one, requested, "resources")
                keep(one, requested, "resizePolicy")
    return spec


def _keep_observed(status: Manifest, before: Manifest) -> None:
    """Keep the generations that were observed, in place, where a status says none.

    Rule: ``preserveOldObservedGeneration``, pkg/registry/core/pod/strategy.go, v1.36: of several
    conditions of one type the first keeps that of the first.
    """
    if not status.get("observedGeneration") and before.get("observedGeneration"):
        status["observedGeneration"] = before["observedGeneration"]
    by_type: dict[str, list[int]] = {}
    for one in before.get("conditions") or ():
        by_type.setdefault(one.get("type") or "", []).append(one.get("observedGeneration") or 0)
    conditions = []
    for one in status.get("conditions") or ():
        same_type = by_type.get(one.get("type") or "")
        former = same_type.pop(0) if same_type else 0
        keeps = former and not one.get("observedGeneration")
        conditions.append({**one, "observedGeneration": former} if keeps else one)
    if conditions:
        status["conditions"] = conditions


def _agree_on_addresses(status: Manifest) -> None:
    """Let ``podIP`` be the first of ``podIPs``, in place; it counts where the two differ.

    Rule: pkg/apis/core/v1/conversion.go, v1.36.
    """
    first, several = status.get("podIP"), status.get("podIPs") or []
    if first and (not several or several[0].get("ip") != first):
        several = [{"ip": first}]
    if several and several[0].get("ip"):
        status["podIP"], status["podIPs"] = several[0]["ip"], several


def keep(new: Manifest, old: Manifest, name: str) -> None:
    """Give a member of ``new`` the value that it has in ``old``, in place."""
    if name in old:
        new[name] = old[name]
    else:
        new.pop(name, None)


def drop_gated_condition(new: Manifest, old: Manifest) -> None:
    """Remove the condition ``SchedulingGated``, in place, from a pod that lost its last gate."""
    before, after = old.get("spec") or {}, new.get("spec") or {}
    if before.get("schedulingGates") and not after.get("schedulingGates"):
        status = new.get("status") or {}
        conditions = [
            one for one in status.get("conditions") or () if one.get("reason") != "SchedulingGated"
        ]
        new["status"] = {**status, "conditions": conditions}


class NodeStrategy(Strategy):
    """``pkg/registry/core/node/strategy.go``."""

    _OFFERS: Final = ("capacity", "allocatable", "images", "declaredFeatures")

    def prepare_for_create(self, new: Manifest) -> None:
        """Label a new node with its name, as a kubelet does (R26), where a label can hold it."""
        metadata = new["metadata"]
        name = metadata.get("name") or ""
        labels = metadata.get("labels") or {}
        if HOSTNAME not in labels and not is_valid_label_value(name):
            metadata["labels"] = {**labels, HOSTNAME: name}

    def moves_placement(self, new: Manifest, old: Manifest) -> bool:
        """Changes of spec, labels and offers count; conditions act through taints alone."""
        if old.get("spec") != new.get("spec"):
            return True
        if old["metadata"].get("labels") != new["metadata"].get("labels"):
            return True
        before, after = old.get("status") or {}, new.get("status") or {}
        return any(before.get(field) != after.get(field) for field in self._OFFERS)

    def is_heartbeat(self, new: Manifest, old: Manifest) -> bool:
        """All that differs is when the agent looked at its conditions last."""
        return _without_heartbeats(old) == _without_heartbeats(new)


def _without_heartbeats(node: Manifest) -> Manifest:
    status = dict(node.get("status") or {})
    status["conditions"] = [
        {key: value for key, value in one.items() if key != "lastHeartbeatTime"}
        for one in status.get("conditions") or ()
    ]
    return {**node, "metadata": _without_author(node), "status": status}


def _without_author(manifest: Manifest) -> Manifest:
    """Return the metadata without resourceVersion and managedFields."""
    unsaid = ("managedFields", "resourceVersion")
    return {key: value for key, value in manifest["metadata"].items() if key not in unsaid}


class NamespaceStrategy(Strategy):
    """``pkg/registry/core/namespace/strategy.go``: ``spec.finalizers`` change by /finalize only."""

    def prepare_for_create(self, new: Manifest) -> None:
        """A new namespace is active, and its content has to be deleted before it."""
        new["status"] = {"phase": "Active"}
        spec = new.get("spec") or {}
        named = spec.get("finalizers") or []
        finalizers = named if "kubernetes" in named else [*named, "kubernetes"]
        new["spec"] = {**spec, "finalizers": finalizers}

    def prepare_for_update(self, new: Manifest, old: Manifest, subresource: str) -> None:
        """Keep the finalizers of the content."""
        if not subresource:
            finalizers = (old.get("spec") or {}).get("finalizers")
            new["spec"] = {
                **(new.get("spec") or {}),
                **({} if finalizers is None else {"finalizers": finalizers}),
            }

    def is_kept(self, manifest: Manifest) -> bool:
        """A namespace stays for its content, too."""
        return super().is_kept(manifest) or bool((manifest.get("spec") or {}).get("finalizers"))

    def begin_deletion(self, new: Manifest) -> None:
        """Nothing can be created in it from now on."""
        new["status"] = {**(new.get("status") or {}), "phase": "Terminating"}


class DeploymentStrategy(Strategy):
    """``pkg/registry/apps/deployment/strategy.go``.

    A status comes with annotations (the revision, for one) and without labels.
    """

    kept_by_status = ("labels",)

    def is_another_generation(self, new: Manifest, old: Manifest) -> bool:
        """Annotations count as well: they are copied to ReplicaSets."""
        before, after = (one["metadata"].get("annotations") or {} for one in (old, new))
        return super().is_another_generation(new, old) or before != after


TEMPLATE_GENERATION: Final = "deprecated.daemonset.template.generation"
"""The annotation that counts the templates of a DaemonSet."""


class DaemonSetStrategy(Strategy):
    """``pkg/registry/apps/daemonset/strategy.go``: the server counts the changes of the template.

    The count is a field of Kubernetes' internal form, and an annotation in ``apps/v1``
    (pkg/apis/apps/v1/conversion.go).
    """

    def prepare_for_create(self, new: Manifest) -> None:
        """Set the template's generation: 1, or the value in the annotation."""
        generation = _count_of(new)
        if generation and not _is_number(generation):
            raise BadRequest(
                "DaemonSet cannot be handled: "
                f"metadata.annotations[{TEMPLATE_GENERATION}]: invalid number {generation!r}"
            )
        _annotate(new, str(max(1, int(generation or 1))))

    def canonicalize(self, new: Manifest, old: Manifest) -> None:
        """Raise the generation if the template differs; clients cannot set it."""
        before = _count_of(old)
        template, former = ((one.get("spec") or {}).get("template") for one in (new, old))
        if template != former:
            _annotate(new, str(1 + (int(before) if _is_number(before) else 0)))
        elif before:
            _annotate(new, before)


def _count_of(manifest: Manifest) -> str:
    return (manifest["metadata"].get("annotations") or {}).get(TEMPLATE_GENERATION) or ""


def _is_number(text: str) -> bool:
    return natural(text[1:] if text[:1] in ("+", "-") else text) is not None


def _annotate(new: Manifest, count: str) -> None:
    metadata = new["metadata"]
    annotations = {**(metadata.get("annotations") or {}), TEMPLATE_GENERATION: count}
    new["metadata"] = {**metadata, "annotations": annotations}


class EndpointSliceStrategy(Strategy):
    """``pkg/registry/discovery/endpointslice/strategy.go``."""

    def is_another_generation(self, new: Manifest, old: Manifest) -> bool:
        """Any change counts, of metadata only the labels."""
        before, after = ({**one, "metadata": None} for one in (old, new))
        labels, former = (one["metadata"].get("labels") or {} for one in (new, old))
        return bool(before != after or labels != former)


class QuotaStrategy(Strategy):
    """``pkg/registry/core/resourcequota/strategy.go``; what is used is counted by the service."""

    def prepare_for_create(self, new: Manifest) -> None:
        """Nothing is counted yet."""
        new.pop("status", None)

    def prepare_for_update(self, new: Manifest, old: Manifest, subresource: str) -> None:
        """Keep ``status.used``. Clients may write ``status.hard``; a recount corrects it."""
        used = (old.get("status") or {}).get("used")
        if subresource == "status" and used is not None:
            new["status"] = {**(new.get("status") or {}), "used": used}

    def moves_admission(self, new: Manifest, old: Manifest) -> bool:
        """Its ``status.used`` does not: admission reads that anew, under the quota's lock."""
        return old.get("spec") != new.get("spec")


class LeaseStrategy(Strategy):
    """Renewals are heartbeats: they stay out of the change log."""

    def is_logged(self, new: Manifest, old: Manifest) -> bool:
        """Return whether a lease differs in more than its renewal time."""
        return not self.is_heartbeat(new, old)

    def is_heartbeat(self, new: Manifest, old: Manifest) -> bool:
        """All that differs is when the lease was renewed."""
        return _without_renewal(old) == _without_renewal(new)


def _without_renewal(lease: Manifest) -> Manifest:
    spec = {k: v for k, v in (lease.get("spec") or {}).items() if k != "renewTime"}
    return {**lease, "metadata": _without_author(lease), "spec": spec}


class JobStrategy(Strategy):
    """``pkg/registry/batch/job/strategy.go``: a new Job's selector is its own uid."""

    def prepare_for_create(self, new: Manifest) -> None:
        """Label the pods with the Job's name and uid, and select by the uid, unless by hand."""
        spec = new["spec"] = dict(new.get("spec") or {})
        template = spec.get("template")
        if spec.get("manualSelector") or template is None:
            return
        metadata, own = dict(template.get("metadata") or {}), new["metadata"]
        uid, name = own["uid"], own.get("name", "")
        labels = {key: value for key, value in (metadata.get("labels") or {}).items() if value}
        metadata["labels"] = {
            "job-name": name,
            "batch.kubernetes.io/job-name": name,
            "controller-uid": uid,
            "batch.kubernetes.io/controller-uid": uid,
            **labels,
        }
        spec["template"] = {**template, "metadata": metadata}
        selector = dict(spec.get("selector") or {})
        pairs = {"batch.kubernetes.io/controller-uid": uid, **(selector.get("matchLabels") or {})}
        spec["selector"] = {**selector, "matchLabels": pairs}


class CertificateStrategy(Strategy):
    """``pkg/registry/certificates/certificates/strategy.go``: the request itself is immutable.

    All conditions are written by /approval; the certificate and conditions that decide nothing by
    /status. Admission fills in the requesting user (``certificate_requests``).
    """

    _DECISIONS: Final = ("Approved", "Denied")

    def prepare_for_create(self, new: Manifest) -> None:
        """Nothing is decided or signed yet."""
        new.pop("status", None)

    def prepare_for_update(self, new: Manifest, old: Manifest, subresource: str) -> None:
        """Keep the fields that writes to this subresource do not change."""
        if not subresource:
            keep(new, old, "spec")
            return
        before, after = old.get("status") or {}, new.get("status") or {}
        if subresource == "approval":
            status = dict(before)
            keep(status, after, "conditions")
        else:
            status = dict(after)
            conditions = self._with_decisions(
                after.get("conditions") or [], before.get("conditions") or []
            )
            if conditions:
                status["conditions"] = conditions
        new["status"] = status

    def _with_decisions(self, new: list[Manifest], old: list[Manifest]) -> list[Manifest]:
        """Return the new conditions, but keep the decisions among the old (Approved, Denied)."""
        decided = {one.get("type"): one for one in old if one.get("type") in self._DECISIONS}
        result = []
        for one in new:
            kind = one.get("type")
            if kind not in self._DECISIONS:
                result.append(one)
            elif kind in decided:
                result.append(decided.pop(kind))
        return [*result, *decided.values()]


class StatusAloneStrategy(Strategy):
    """Kinds whose ``/status`` leaves metadata alone: its writers may lack the right to label.

    ``pkg/registry/storage/volumeattachment/strategy.go``, ``metav1.ResetObjectMetaForStatus``.
    """

    kept_by_status = ("labels", "annotations", "finalizers", "ownerReferences")


class DeviceClaimStrategy(StatusAloneStrategy):
    """``pkg/registry/resource/resourceclaim/strategy.go``."""

    def prepare_for_update(self, new: Manifest, old: Manifest, subresource: str) -> None:
        """Drop drivers' reports of devices that are not allocated to the claim any more."""
        status = new.get("status") or {}
        if subresource != "status" or not status.get("devices"):
            return
        gone = devices.allocated(old.get("status") or {}) - devices.allocated(status)
        if gone:
            remaining = [one for one in status["devices"] if devices.identity(one) not in gone]
            new["status"] = {**status, "devices": remaining}
            if not remaining:
                del new["status"]["devices"]


class TaintedSliceStrategy(Strategy):
    """Taints of devices count from when they were written (``SetDefaults_DeviceTaint``)."""

    def stamp(self, new: Manifest, now: str) -> None:
        """Put the time into taints without one."""
        spec = new.get("spec") or {}
        found = [device.get("taints") for device in spec.get("devices") or ()]
        if not any(_is_timeless(taint) for taints in found for taint in taints or ()):
            return
        devices_ = [
            {**device, "taints": [_since(one, now) for one in device["taints"]]}
            if device.get("taints") else device
            for device in spec["devices"]
        ]  # fmt: skip
        new["spec"] = {**spec, "devices": devices_}


class DeviceTaintRuleStrategy(StatusAloneStrategy):
    """The taint of a rule counts from when its effect was written.

    ``SetDefaults_DeviceTaint`` and pkg/registry/resource/devicetaintrule/strategy.go, v1.36.
    """

    def prepare_for_update(self, new: Manifest, old: Manifest, subresource: str) -> None:
        """Drop the time of a taint with another effect, so that ``stamp`` sets a new one."""
        taint, before = ((one.get("spec") or {}).get("taint") or {} for one in (new, old))
        same_time = taint.get("timeAdded") == before.get("timeAdded")
        if not subresource and same_time and taint.get("effect") != before.get("effect"):
            new["spec"] = {**new["spec"], "taint": {**taint, "timeAdded": None}}

    def stamp(self, new: Manifest, now: str) -> None:
        """Put the time into a taint without one."""
        spec = new.get("spec") or {}
        if spec.get("taint") and _is_timeless(spec["taint"]):
            new["spec"] = {**spec, "taint": _since(spec["taint"], now)}


def _is_timeless(taint: Manifest) -> bool:
    return not taint.get("timeAdded")


def _since(taint: Manifest, now: str) -> Manifest:
    return {**taint, "timeAdded": now} if _is_timeless(taint) else taint


class ServiceStrategy(Strategy):
    """``pkg/registry/core/service/strategy.go``: a Service keeps the address that it got."""

    def prepare_for_create(self, new: Manifest) -> None:
        """Begin with an empty load balancer status."""
        new["status"] = {"loadBalancer": {}}

    def prepare_for_update(self, new: Manifest, old: Manifest, subresource: str) -> None:
        """Keep the address where a client leaves it out.

        The load balancer's status goes when the Service is no longer of type LoadBalancer.
        """
        if subresource:
            return
        spec = new["spec"] = addresses.keep_allocated(new.get("spec") or {}, old.get("spec") or {})
        status = new.get("status") or {}
        if (status.get("loadBalancer") or {}).get("ingress") and spec.get("type") != "LoadBalancer":
            new["status"] = {**status, "loadBalancer": {}}


class ServiceCidrStrategy(StatusAloneStrategy):
    """``pkg/registry/networking/servicecidr/strategy.go``."""

    def prepare_for_create(self, new: Manifest) -> None:
        """Mark the range that Services get addresses from as ready, and no other range."""
        new.pop("status", None)
        if (new.get("spec") or {}).get("cidrs") == [str(addresses.NETWORK)]:
            ready = {
                "type": "Ready", "status": "True", "reason": "", "message": "",
                "lastTransitionTime": new["metadata"].get("creationTimestamp"),
            }  # fmt: skip
            new["status"] = {"conditions": [ready]}
