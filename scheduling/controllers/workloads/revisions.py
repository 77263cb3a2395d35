"""ControllerRevisions: writes what ``revision_rules`` decides about an owner's history."""

from collections.abc import Collection

from clusterstate.actions import objects
from clusterstate.objects.values.errors import AlreadyExists
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.objects import decode_object, find_object
from scheduling.controllers.workloads import deployment_status
from scheduling.controllers.workloads import revision_rules as rules
from scheduling.controllers.workloads.claims import claim
from scheduling.controllers.workloads.control import NamespaceControl, reference

KIND = "ControllerRevision"


def trace(control: NamespaceControl, owner: Manifest) -> rules.History | None:
    """Return an owner's ControllerRevisions, with one of its present template.

    ``None`` when another template has the name of the new revision; the next hash differs.
    """
    history = rules.trace(owner, claim(control, owner, KIND))
    if history.raised:
        number = history.current["revision"]
        control.write(history.current, lambda one: {**one, "revision": number})
    if not history.created:
        return history
    new = history.current
    metadata = {**new["metadata"], "ownerReferences": [reference(owner)]}
    try:
        stored = objects.create(
            KIND, control.world.namespace, {**new, "metadata": metadata}, now=control.now
        )
    except AlreadyExists:
        # ``promptly`` may have created it since this pass began.
        text = find_object(KIND, control.world.namespace, metadata["name"])
        present = None if text is None else decode_object(text)
        if present is not None and present.get("data") == new["data"]:
            control.world.replace(KIND, metadata["name"], present)
            return rules.History(present, history.old)
        control.write_status(owner, deployment_status.collided(owner.get("status") or {}))
        return None
    control.wrote = True
    current = decode_object(stored.manifest)
    control.world.replace(KIND, metadata["name"], current)
    return rules.History(current, history.old, created=True)


def merge(
    control: NamespaceControl, history: rules.History, live: Collection[str]
) -> rules.History:
    """Delete the other revisions that hold the present template; return the history without them.

    The pods have the current one's hash by then; a revision whose hash is among the ``live`` ones,
    since a pod could not be changed, waits for the next pass.
    """
    done = [one for one in history.equal if rules.hash_of(one) not in live]
    for one in done:
        control.delete(one)
    return rules.History(history.current, [one for one in history.old if one not in done])


def truncate(
    control: NamespaceControl, owner: Manifest, history: rules.History, live: Collection[str]
) -> None:
    """Delete the old revisions above the owner's limit, except those that pods have."""
    for one in rules.beyond(owner, history.old, live):
        control.delete(one)
