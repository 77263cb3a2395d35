"""Creates the pods that controllers would create for workloads in users' files.

A dump of a cluster has workloads and their pods, a chart only workloads: either way each workload
gets as many pods as it requests, counting existing pods that match its selector. The controllers'
own code decides on which nodes DaemonSet pods run, and what a StatefulSet adds to its pods.

Claims of a StatefulSet's templates and of ephemeral volumes are created if their StorageClass, in
the files, waits for the first consumer: then the volume restricts the pod's node. Other claims
would need a controller to bind them, so their volumes count as reachable from every node.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from clusterstate.objects.rules import default_classes
from clusterstate.objects.rules.volume_matching import ephemeral_claim_name
from clusterstate.objects.values.labels import (
    Selector,
    SelectorError,
    selector_from_label_selector,
    selector_from_set,
)
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.node import Node
from clusterstate.objects.values.pod import LabelSelector
from scheduling.controllers.workloads import daemon_set_rules, stateful_set_rules

KINDS: Final = frozenset(
    {
        "CronJob",
        "DaemonSet",
        "Deployment",
        "Job",
        "ReplicaSet",
        "ReplicationController",
        "StatefulSet",
    }
)
_API_VERSIONS: Final = {"ReplicationController": "v1", "Job": "batch/v1", "CronJob": "batch/v1"}
_ENDED: Final = ("Succeeded", "Failed")
_JOB_LABELS: Final = ("batch.kubernetes.io/job-name", "job-name")
_SETS: Final = {"Deployment": "ReplicaSet", "CronJob": "Job"}
"""The kind of object that a workload creates in order to create pods."""


class ExpandedDocuments:
    """Documents, each followed by the pods of its workload; ``notes``: what was left out."""

    def __init__(self, documents: Sequence[Any]) -> None:
        self.notes: list[str] = []
        found = [one for one in documents if isinstance(one, dict)]
        self._pods = [one for one in found if one.get("kind") == "Pod"]
        nodes = [one for one in found if one.get("kind") == "Node"]
        self._nodes = list({_meta(one).get("name"): one for one in nodes}.values())
        self._classes = [one for one in found if one.get("kind") == "StorageClass"]
        self._volumes = [one for one in found if one.get("kind") == "PersistentVolume"]
        self._claims = {
            (_namespace(one), _meta(one).get("name")): one
            for one in found
            if one.get("kind") == "PersistentVolumeClaim"
        }
        self._owned = {
            (_namespace(one), one.get("kind"), owner.get("kind"), owner.get("name"))
            for one in found
            for owner in _meta(one).get("ownerReferences") or ()
            if isinstance(owner, dict)
        }
        self._names = {(_namespace(one), _meta(one).get("name")) for one in self._pods}
        for name, times in Counter(_meta(one).get("name") for one in nodes).items():
            if name and times > 1:
                self.notes.append(f"Node {name}: is given {times} times, and the last one counts")
        self.documents = [expanded for one in documents for expanded in self._with_pods(one)]

    def _with_pods(self, document: Any) -> Iterator[Any]:
        kind = document.get("kind") if isinstance(document, dict) else None
        spec = document.get("spec") if kind else None
        if kind == "Pod" and isinstance(spec, dict) and not spec.get("nodeName"):
            try:
                yield from [*self._with_claims(document, document, {})]
            except (ValueError, TypeError, AttributeError):
                yield document
            return
        yield document
        if kind not in KINDS or not isinstance(spec, dict):
            return
        try:
            yield from self._pods_of(kind, document)
        except (SelectorError, msgspec.ValidationError, ValueError, TypeError, AttributeError):
            return  # the simulation reports the invalid field

    def _pods_of(self, kind: str, document: Manifest) -> Iterator[Manifest]:
        spec, name = document["spec"], str(_meta(document).get("name") or "")
        between = _SETS.get(kind)
        if between and (_namespace(document), between, kind, name) in self._owned:
            return  # the files have its ReplicaSets or Jobs, which own the pods
        if kind == "CronJob":
            if spec.get("suspend"):
                self._note(document, "is suspended, so none of its pods are placed")
                return
            self._note(document, "the pods of one run are placed")
            spec = (spec.get("jobTemplate") or {}).get("spec") or {}
        template = spec.get("template") or {}
        number = self._replicas_of(kind, document, spec, template)
        owner = document
        if kind == "Deployment":
            owner = {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "metadata": {**_bare(document), "labels": _meta(template).get("labels") or {}},
                "spec": {"selector": spec.get("selector"), "template": template},
            }
            yield owner
        if kind == "DaemonSet":
            yield from self._daemons(document, template)
            return
        there = 0 if kind == "CronJob" else self._present(kind, document, spec, template)
        if number < there:
            self._note(document, f"has {there} pods in the files, more than its {number} replicas")
        first = int((spec.get("ordinals") or {}).get("start") or 0)
        for _ in range(number - there):
            pod, claims = self._pod(owner, template, first)
            yield from self._with_claims(document, pod, claims)

    def _replicas_of(
        self, kind: str, document: Manifest, spec: Manifest, template: Manifest
    ) -> int:
        if kind not in ("Job", "CronJob"):
            replicas = spec.get("replicas")
            return 1 if replicas is None else int(replicas)
        status = (document.get("status") or {}) if kind == "Job" else {}
        ended = {one.get("type") for one in status.get("conditions") or () if _is_true(one)}
        if ended & {"Complete", "Failed"}:
            self._note(document, "has ended")
            return 0
        if spec.get("suspend"):
            self._note(document, "is suspended: none of its pods are placed")
            return 0
        parallel = spec.get("parallelism")
        parallel = 1 if parallel is None else int(parallel)
        completions = spec.get("completions")
        if completions is None:
            return parallel
        due = max(0, int(completions) - int(status.get("succeeded") or 0))
        if due > parallel:
            self._note(document, f"{parallel} of its {due} pods are placed, as many as run at once")
        return min(parallel, due)

    def _present(self, kind: str, document: Manifest, spec: Manifest, template: Manifest) -> int:
        selector = _selector(kind, spec)
        if selector is None:
            name = _meta(document).get("name")
            return sum(
                _namespace(pod) == _namespace(document)
                and any(
                    owner.get("kind") == kind and owner.get("name") == name
                    for owner in _meta(pod).get("ownerReferences") or ()
                )
                for pod in self._active()
            )
        return sum(
            _namespace(pod) == _namespace(document)
            and selector.matches(_meta(pod).get("labels") or {})
            for pod in self._active()
        )

    def _active(self) -> list[Manifest]:
        return [one for one in self._pods if (one.get("status") or {}).get("phase") not in _ENDED]

    def _daemons(self, document: Manifest, template: Manifest) -> Iterator[Manifest]:
        daemon = daemon_set_rules.Daemon(template)
        selector = _selector("DaemonSet", document["spec"])
        occupied = {
            _node_of(pod)
            for pod in self._active()
            if _namespace(pod) == _namespace(document)
            and selector is not None
            and selector.matches(_meta(pod).get("labels") or {})
        }
        spec = template.get("spec") or {}
        base = {**spec, "tolerations": daemon_set_rules.tolerations(spec)}
        excluded = 0
        for manifest in self._nodes:
            node = msgspec.convert(
                {"metadata": manifest.get("metadata") or {}, "spec": manifest.get("spec") or {}},
                Node,
            )
            name = node.metadata.name
            judged = daemon.judge(
                daemon_set_rules.DaemonNode(name, node.metadata.labels, node.spec.taints)
            )
            excluded += not judged.runs
            if judged.runs and name not in occupied:
                own = {**template, "spec": daemon_set_rules.pinned(base, name)}
                pod, claims = self._pod(document, own, 0)
                yield from self._with_claims(document, pod, claims)
        if excluded:
            self._note(
                document, f"gets pods on {len(self._nodes) - excluded} of {len(self._nodes)} nodes"
            )

    def _pod(
        self, owner: Manifest, template: Manifest, first: int
    ) -> tuple[Manifest, dict[str, Manifest]]:
        """Return a new pod of an owner, and the claims of its templates by volume name."""
        namespace = _namespace(owner)
        name, number = str(_meta(owner).get("name") or ""), first
        while (namespace, f"{name}-{number}") in self._names:
            number += 1
        self._names.add((namespace, f"{name}-{number}"))
        kind = str(owner["kind"])
        reference = {
            "apiVersion": _API_VERSIONS.get(kind, "apps/v1"),
            "kind": kind,
            "name": name,
            "uid": _meta(owner).get("uid") or f"{kind}/{namespace}/{name}",
            "controller": True,
        }
        claims: dict[str, Manifest] = {}
        if kind == "StatefulSet":
            set_ = {**owner, "metadata": {"name": name, "namespace": namespace}}
            history = {"metadata": {"name": name}, "data": {"spec": {"template": template}}}
            template = stateful_set_rules.template_for(set_, history, number)
            own_claims = stateful_set_rules.claims_for(set_, number)
            names = [
                _meta(one).get("name") for one in owner["spec"].get("volumeClaimTemplates") or ()
            ]
            claims = {str(own): one for own, one in zip(names, own_claims, strict=True)}
        meta = _meta(template)
        copied = {key: meta[key] for key in ("labels", "annotations") if meta.get(key)}
        if kind in ("Job", "CronJob"):
            copied["labels"] = {**(copied.get("labels") or {}), **dict.fromkeys(_JOB_LABELS, name)}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{name}-{number}",
                "namespace": namespace,
                **copied,
                "ownerReferences": [reference],
            },
            "spec": template.get("spec") or {},
        }
        return pod, claims

    def _with_claims(
        self, document: Manifest, pod: Manifest, claims: Mapping[str, Manifest]
    ) -> Iterator[Manifest]:
        """Yield the claims of a pod, and the pod with volumes that refer to them."""
        volumes, unbound = [], []
        for volume in pod["spec"].get("volumes") or ():
            name = str(volume.get("name"))
            claim = claims.get(name)
            template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
            if template and claim is None:
                of_pod = ephemeral_claim_name(str(_meta(pod).get("name")), name)
                claim = {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "metadata": {"name": of_pod, "namespace": _namespace(pod)},
                    "spec": template.get("spec") or {},
                }
            if claim is None:
                named = (volume.get("persistentVolumeClaim") or {}).get("claimName")
                there = self._claims.get((_namespace(pod), named))
                if there is not None and self._is_anybodys(there):
                    unbound.append(name)
                    volume = {"name": name, "emptyDir": {}}  # noqa: PLW2901
                volumes.append(volume)
                continue
            if (_namespace(claim), _meta(claim)["name"]) not in self._claims:
                waiting = self._waits(claim)
                if waiting is None:
                    unbound.append(name)
                    volumes.append({"name": name, "emptyDir": {}})
                    continue
                yield waiting
            volumes.append(
                {"name": name, "persistentVolumeClaim": {"claimName": _meta(claim)["name"]}}
            )
        if unbound:
            text = f"volumes {', '.join(unbound)} are taken to be on every node: the files have no"
            self._note(document, f"{text} StorageClass with WaitForFirstConsumer")
        yield {**pod, "spec": {**pod["spec"], "volumes": volumes}} if volumes else pod

    def _class_of(self, claim: Manifest) -> str:
        named = claim["spec"].get("storageClassName")
        found = default_classes.choose("StorageClass", self._classes) if named is None else named
        return str(found)

    def _waits(self, claim: Manifest) -> Manifest | None:
        """Return a claim with its class; ``None`` if the class binds volumes immediately."""
        name = self._class_of(claim)
        if claim["spec"].get("storageClassName") == "":
            return claim  # for a volume that exists already
        for one in self._classes:
            if _meta(one).get("name") == name:
                if one.get("volumeBindingMode") != "WaitForFirstConsumer":
                    return None
                return {**claim, "spec": {**claim["spec"], "storageClassName": name}}
        return None

    def _is_anybodys(self, claim: Manifest) -> bool:
        """Return whether the files have neither the class nor any volume for an unbound claim."""
        spec = claim.get("spec") or {}
        name = self._class_of({**claim, "spec": spec})
        has_class = any(_meta(one).get("name") == name for one in self._classes)
        volumes = any(
            ((one.get("spec") or {}).get("storageClassName") or "") == name for one in self._volumes
        )
        return not (spec.get("volumeName") or has_class or volumes)

    def _note(self, document: Manifest, text: str) -> None:
        name = _meta(document).get("name") or "without a name"
        note = f"{document['kind']} {_namespace(document)}/{name}: {text}"
        if note not in self.notes:
            self.notes.append(note)


def _meta(document: Manifest) -> Manifest:
    found = document.get("metadata")
    return found if isinstance(found, dict) else {}


def _bare(document: Manifest) -> Manifest:
    return {key: value for key, value in _meta(document).items() if key in ("name", "namespace")}


def _namespace(document: Manifest) -> str:
    return str(_meta(document).get("namespace") or "default")


def _is_true(condition: Manifest) -> bool:
    return condition.get("status") == "True"


def _node_of(pod: Manifest) -> str:
    """Return the node of a DaemonSet pod, from ``spec.nodeName`` or its node affinity."""
    spec = pod.get("spec") or {}
    if spec.get("nodeName"):
        return str(spec["nodeName"])
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or ():
        for one in term.get("matchFields") or ():
            if one.get("key") == "metadata.name" and one.get("values"):
                return str(one["values"][0])
    return ""


def _selector(kind: str, spec: Manifest) -> Selector | None:
    """Return a workload's selector of pods; ``None`` if it has none, such as a Job."""
    selector = spec.get("selector")
    if kind == "ReplicationController":
        labels = selector or _meta(spec.get("template") or {}).get("labels")
        return selector_from_set(labels) if labels else None
    if not selector:
        return None
    return selector_from_label_selector(msgspec.convert(selector, LabelSelector))
