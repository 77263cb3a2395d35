"""Which revision of a template a DaemonSet or StatefulSet has, and which former ones are kept.

Pure. A ControllerRevision holds a template as a patch that restores it, so that ``kubectl rollout
undo`` can apply it. Rules: pkg/controller/history/controller_history.go, daemon/update.go
(``constructHistory``), statefulset/stateful_set_control.go, v1.36.
"""

from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from clusterstate.objects.rules.templates import same_template
from clusterstate.objects.values.meta import Manifest
from scheduling.controllers.workloads.deployment_records import template_hash

HASH_LABEL: Final = "controller-revision-hash"


class History(msgspec.Struct, frozen=True):
    """The revision of the present template, and the others from the oldest on.

    ``created``: the present one is new. ``raised``: it is an old one that becomes the newest now.
    ``equal``: those of the others that hold the same template.
    """

    current: Manifest
    old: list[Manifest]
    created: bool = False
    raised: bool = False
    equal: list[Manifest] = []


def data_of(owner: Manifest) -> Manifest:
    """Return the patch that restores an owner's present template."""
    return {"spec": {"template": {**owner["spec"]["template"], "$patch": "replace"}}}


def template_of(revision: Manifest) -> Manifest:
    """Return the template that a revision holds."""
    template = ((revision.get("data") or {}).get("spec") or {}).get("template") or {}
    return {key: value for key, value in template.items() if key != "$patch"}


def trace(owner: Manifest, revisions: Sequence[Manifest]) -> History:
    """Return an owner's history, with a new revision for a template that has none."""
    data = data_of(owner)
    ordered = sorted(revisions, key=_order)
    template = owner["spec"]["template"]
    equal = [one for one in ordered if same_template(template_of(one), template)]
    newest = max((one.get("revision", 0) for one in ordered if one not in equal), default=0)
    if not equal:
        return History(_snapshot(owner, data, newest + 1), ordered, created=True)
    *others, current = equal
    old = [one for one in ordered if one is not current]
    if current.get("revision", 0) <= newest:
        current = {**current, "revision": newest + 1}
        return History(current, old, raised=True, equal=others)
    return History(current, old, equal=others)


def _order(revision: Manifest) -> tuple[int, str, str]:
    metadata = revision["metadata"]
    return revision.get("revision", 0), metadata.get("creationTimestamp", ""), metadata["name"]


def _snapshot(owner: Manifest, data: Manifest, number: int) -> Manifest:
    metadata, template = owner["metadata"], owner["spec"]["template"]
    collisions = (owner.get("status") or {}).get("collisionCount") or 0
    digest = template_hash(data, collisions)
    labels = (template.get("metadata") or {}).get("labels") or {}
    annotations = {
        key: value
        for key, value in (metadata.get("annotations") or {}).items()
        if key != "kubectl.kubernetes.io/last-applied-configuration"
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": f"{metadata['name']}-{digest}",
            "namespace": metadata["namespace"],
            "labels": {**labels, HASH_LABEL: digest},
            **({"annotations": annotations} if annotations else {}),
        },
        "data": data,
        "revision": number,
    }


def hash_of(revision: Manifest) -> str:
    """Return the hash label's value of the pods of a DaemonSet's revision."""
    metadata = revision["metadata"]
    found = (metadata.get("labels") or {}).get(HASH_LABEL)
    return str(found or metadata["name"].rpartition("-")[2])


def beyond(owner: Manifest, old: Sequence[Manifest], live: Collection[str]) -> list[Manifest]:
    """Return the old revisions above the limit that no pod has (``live``: hashes or names)."""
    limit = owner["spec"].get("revisionHistoryLimit")
    excess = len(old) - (10 if limit is None else limit)
    if excess <= 0:
        return []
    idle = [one for one in old if hash_of(one) not in live and one["metadata"]["name"] not in live]
    return idle[:excess]
