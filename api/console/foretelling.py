"""What a change of nodes or pods will do: who leaves, when, by which rule, and where each lands.

Nothing here decides. Who must leave a node is told by ``clusterstate.objects.eviction``, where pods
land by a simulation on the live cluster with the nodes as they will be, asked of an advisor. The
``digest`` is of what matters to whoever confirms: if it is another one when the change is to be
carried out, they see the new outcome first.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from api.console import words
from clusterstate import changes
from clusterstate.objects import eviction
from clusterstate.objects.errors import StatusError
from clusterstate.objects.labels import selector_from_label_selector
from clusterstate.objects.meta import Manifest
from clusterstate.objects.node import Node
from clusterstate.objects.pod import LabelSelector, Pod
from clusterstate.queries.lists import list_page
from clusterstate.queries.objects import decode_object, find_object, not_found
from clusterstate.queries.pods import find_pods, pod_manifests
from clusterstate.queries.stays import Stay, stays_on
from scheduling.answers import advisor

DRAIN, DELETE, EDIT, EVICT, DELETE_POD = "drain", "delete", "edit", "evict", "delete-pod"
_LANDINGS: Final = 2000
"""Of more pods that leave it is not worked out where they land."""
_MIRROR: Final = "kubernetes.io/config.mirror"
_KEPT: Final = ("name", "namespace", "labels", "annotations", "ownerReferences")

TaintKey = tuple[str, str]


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A change: what to do with which nodes or pods; the rest is for ``edit``.

    ``cordon``: None leaves it. ``taints`` are (key, effect) with their values, added or replaced;
    ``gone_taints`` are taken away, with an empty effect all of that key.
    """

    do: str
    nodes: tuple[str, ...] = ()
    pods: tuple[tuple[str, str], ...] = ()
    cordon: bool | None = None
    labels: Mapping[str, str] = {}
    gone_labels: tuple[str, ...] = ()
    taints: Mapping[TaintKey, str] = {}
    gone_taints: tuple[TaintKey, ...] = ()
    force: bool = False

    def applied_to(self, manifest: Manifest) -> Manifest:
        """Return a node's manifest with the change; what others changed elsewhere stays."""
        spec, metadata = dict(manifest.get("spec") or {}), dict(manifest["metadata"])
        cordon = True if self.do == DRAIN else self.cordon
        if cordon is True:
            spec["unschedulable"] = True
        elif cordon is False:
            spec.pop("unschedulable", None)
        if self.labels or self.gone_labels:
            kept = {**(metadata.get("labels") or {}), **self.labels}
            metadata["labels"] = {k: v for k, v in kept.items() if k not in self.gone_labels}
        if self.taints or self.gone_taints:
            spec["taints"] = list(self._tainted(spec.get("taints") or ()))
            if not spec["taints"]:
                del spec["taints"]
        return {**manifest, "metadata": metadata, **({"spec": spec} if spec else {})}

    def _tainted(self, present: Iterable[Manifest]) -> Iterable[Manifest]:
        missing = dict(self.taints)
        for one in present:
            key, effect = one.get("key", ""), one.get("effect", "")
            if (key, effect) in self.gone_taints or (key, "") in self.gone_taints:
                continue
            value = missing.pop((key, effect), None)
            if value is None or value == one.get("value", ""):
                yield one
            else:
                yield {"key": key, "effect": effect, **({"value": value} if value else {})}
        for (key, effect), value in missing.items():
            yield {"key": key, "effect": effect, **({"value": value} if value else {})}


class Leaver(msgspec.Struct, kw_only=True):
    """A pod that leaves its node, or one that stays where others leave (``stays`` says why).

    ``leaves_at`` None: at once. ``grace``: seconds it may take to end. ``again``: its controller
    makes another. ``lands``: on which node, empty where nowhere, and ``message`` why.
    """

    namespace: str
    name: str
    uid: str
    node: str
    asks: str
    rule: str
    leaves_at: datetime | None = None
    grace: int = 30
    again: bool = True
    lands: str = ""
    message: str = ""
    stays: str = ""
    budget: str = ""


class Budget(msgspec.Struct, frozen=True):
    """A disruption budget that pods which leave belong to."""

    namespace: str
    name: str
    allowed: int
    pods: int


class Foretold(msgspec.Struct, kw_only=True):
    """What a change will do."""

    wanted: Wanted
    revision: int
    leavers: list[Leaver]
    staying: list[Leaver]
    budgets: list[Budget]
    problem: str = ""

    @property
    def landed(self) -> int:
        """How many of the pods that come again find a place."""
        return sum(bool(one.lands) for one in self.leavers)

    @property
    def stuck(self) -> int:
        """How many of the pods that come again find none."""
        return sum(one.again and not one.lands for one in self.leavers)

    @property
    def lost(self) -> int:
        """How many pods nobody makes again."""
        return sum(not one.again for one in self.leavers)

    @property
    def digest(self) -> str:
        """A text that is another one when somebody else leaves, stays or finds no place."""
        facts = sorted(
            (one.uid, one.rule, one.again and not one.lands and not self.problem)
            for one in self.leavers
        )
        return hashlib.sha256(msgspec.json.encode(facts)).hexdigest()[:24]


def foretell(wanted: Wanted, *, now: datetime) -> Foretold:
    """Return what a change will do. Queries a dozen times, and asks an advisor.

    Raises:
        NotFound: one of the nodes or pods is not there.
    """
    revision = changes.watermark()
    nodes = [_node(name) for name in wanted.nodes]
    after = [wanted.applied_to(one) for one in nodes]
    if wanted.pods:
        leavers, staying = _of_pods(wanted), list[Leaver]()
        manifests = _manifests(wanted.pods)
    else:
        stays = stays_on(wanted.nodes) if wanted.nodes else []
        texts = pod_manifests([one.pod_id for one in stays])
        pods = {id_: decode_object(text) for id_, text in texts.items()}
        found = list(_of_nodes(wanted, stays, pods, nodes, after, now))
        leavers = [one for one in found if not one.stays]
        staying = [one for one in found if one.stays]
        manifests = {_key(one): one for one in pods.values()}
    told = Foretold(wanted=wanted, revision=revision, leavers=leavers, staying=staying, budgets=[])
    told.budgets = _budgets(leavers, manifests)
    _land(told, manifests, after)
    told.leavers.sort(key=lambda one: (one.leaves_at or now, one.namespace, one.name))
    return told


def _node(name: str) -> Manifest:
    found = find_object("Node", "", name)
    if found is None:
        raise not_found("Node", name)
    return decode_object(found)


def _key(pod: Manifest) -> tuple[str, str]:
    return pod["metadata"]["namespace"], pod["metadata"]["name"]


def _manifests(keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Manifest]:
    found = zip(keys, find_pods(keys), strict=True)
    return {key: decode_object(text) for key, text in found if text is not None}


def _of_pods(wanted: Wanted) -> list[Leaver]:
    manifests = _manifests(wanted.pods)
    missing = [key for key in wanted.pods if key not in manifests]
    if missing:
        raise not_found("Pod", missing[0][1])
    rule = "eviction API" if wanted.do == EVICT else "deleted"
    return [_leaver(one, rule) for one in manifests.values()]


def _leaver(pod: Manifest, rule: str, leaves_at: datetime | None = None) -> Leaver:
    metadata, spec = pod["metadata"], pod["spec"]
    owners = metadata.get("ownerReferences") or ()
    grace = spec.get("terminationGracePeriodSeconds")
    return Leaver(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        node=spec.get("nodeName", ""),
        asks=_asks(pod),
        rule=rule,
        leaves_at=leaves_at,
        grace=30 if grace is None else grace,
        again=any(one.get("controller") for one in owners),
    )


def _asks(pod: Manifest) -> str:
    asked = words.requests_of(pod)
    shown = [f"{words.amount('cpu', asked['cpu'])} CPU"] if asked.get("cpu") else []
    shown += [words.amount(name, asked[name]) for name in ("memory",) if asked.get(name)]
    others = ("cpu", "memory", "ephemeral-storage", "pods")
    shown += [f"{amount} {name}" for name, amount in asked.items() if name not in others]
    return ", ".join(shown)


def _of_nodes(
    wanted: Wanted,
    stays: Sequence[Stay],
    pods: Mapping[int, Manifest],
    nodes: Sequence[Manifest],
    after: Sequence[Manifest],
    now: datetime,
) -> Iterable[Leaver]:
    """Yield the pods on nodes that leave, and those of a drain that stay."""
    before = {one["metadata"]["name"]: msgspec.convert(one, Node) for one in nodes}
    then = {one["metadata"]["name"]: msgspec.convert(one, Node) for one in after}
    for stay in stays:
        pod = pods.get(stay.pod_id)
        if pod is None:
            continue
        if wanted.do == DRAIN:
            found = _leaver(pod, "eviction API")
            owners = pod["metadata"].get("ownerReferences") or ()
            if any(one.get("controller") and one.get("kind") == "DaemonSet" for one in owners):
                found.stays = "a DaemonSet's pod, which would come back"
            elif _MIRROR in (pod["metadata"].get("annotations") or {}):
                found.stays = "a mirror of a static pod"
            elif not found.again and not wanted.force:
                found.stays = "no controller makes it again: drain with force to evict it"
            yield found
        elif wanted.do == DELETE:
            yield _leaver(pod, "collected once its node is gone")
        else:
            found_now = _sent_away(pod, stay, before[stay.node_name], then[stay.node_name], now)
            if found_now is not None:
                yield found_now


def _sent_away(pod: Manifest, stay: Stay, before: Node, then: Node, now: datetime) -> Leaver | None:
    """Return a pod that an edited node sends away, or earlier than it would go anyway."""
    rules = eviction.rules_of(msgspec.convert(pod, Pod))
    name = stay.node_name
    if eviction.is_broken(rules, name, then.metadata.labels) and not eviction.is_broken(
        rules, name, before.metadata.labels
    ):
        return _leaver(pod, "its terms that are required during execution no longer match")
    was, will = (
        eviction.deadline(
            eviction.countdowns(rules.tolerations, one.spec.taints, added_at=now), stay.bound_at
        )
        for one in (before, then)
    )
    if will is None or (was is not None and was.due_at <= will.due_at):
        return None
    taint = words.taint((will.taint.key, will.taint.value, will.taint.effect))
    rule = f"taint {taint}"
    if will.seconds:
        rule += f", tolerated for {will.seconds} s"
    return _leaver(pod, rule, will.due_at if will.due_at > now else None)


def _budgets(
    leavers: Sequence[Leaver], manifests: Mapping[tuple[str, str], Manifest]
) -> list[Budget]:
    found = []
    for namespace in sorted({one.namespace for one in leavers}):
        for text in list_page("PodDisruptionBudget", namespace).items:
            budget = decode_object(text)
            selector = (budget.get("spec") or {}).get("selector")
            lens = None if selector is None else msgspec.convert(selector, LabelSelector)
            chosen = selector_from_label_selector(lens)
            here = [
                one
                for one in leavers
                if one.namespace == namespace and chosen.matches(_labels(manifests, one))
            ]
            name = budget["metadata"]["name"]
            for one in here:
                one.budget = name
            if here:
                allowed = (budget.get("status") or {}).get("disruptionsAllowed", 0)
                found.append(Budget(namespace, name, allowed, len(here)))
    return found


def _labels(manifests: Mapping[tuple[str, str], Manifest], one: Leaver) -> dict[str, str]:
    labels: dict[str, str] = manifests[one.namespace, one.name]["metadata"].get("labels") or {}
    return labels


def _land(
    told: Foretold, manifests: Mapping[tuple[str, str], Manifest], after: Sequence[Manifest]
) -> None:
    """Find out where the pods that come again would go, with the nodes as they will be."""
    coming = [one for one in told.leavers if one.again]
    if not coming:
        return
    if len(coming) > _LANDINGS:
        told.problem = f"more than {_LANDINGS} pods leave: it is not worked out where they land"
        return
    gone = [{"kind": "Pod", "namespace": one.namespace, "name": one.name} for one in told.leavers]
    deletes_nodes = told.wanted.do == DELETE
    if deletes_nodes:
        gone += [{"kind": "Node", "name": name} for name in told.wanted.nodes]
    document: dict[str, Any] = {
        "apiVersion": "stowage.dev/v1",
        "kind": "Simulation",
        "spec": {
            "base": "live",
            "tieBreak": "first",
            "explain": "none",
            "objects": [] if deletes_nodes else list(after),
            "delete": gone,
            "pods": [_anew(manifests[one.namespace, one.name]) for one in coming],
        },
    }
    try:
        results = advisor.ask("simulation", document, deadline=15.0)["status"]["results"]
    except StatusError as error:
        told.problem = f"where the pods land is not known: {error.message}"
        return
    for one, result in zip(coming, results, strict=True):
        one.lands = result.get("nodeName") or ""
        one.message = result.get("message") or ""


def _anew(pod: Manifest) -> Manifest:
    metadata = {key: pod["metadata"][key] for key in _KEPT if key in pod["metadata"]}
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
