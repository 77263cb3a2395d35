"""StatefulSets: carries out what ``stateful_set_rules`` plans for their pods."""

from clusterstate.actions import objects
from clusterstate.objects.errors import AlreadyExists, StatusError
from clusterstate.objects.meta import Manifest
from scheduling.controllers.workloads import revisions
from scheduling.controllers.workloads import stateful_set_rules as rules
from scheduling.controllers.workloads.hands import Hands, pod_of
from scheduling.controllers.workloads.revision_rules import HASH_LABEL

_CLAIM = "PersistentVolumeClaim"


def sync(hands: Hands, owner: Manifest) -> None:
    """Make a StatefulSet's next step, and bring its status up to date."""
    pods = hands.claim(owner)
    history = revisions.trace(hands, owner)
    if history is None:
        return
    known = {one["metadata"]["name"]: one for one in (*history.old, history.current)}
    update = history.current["metadata"]["name"]
    current = (owner.get("status") or {}).get("currentRevision") or update
    current = current if current in known else update
    plan = rules.plan(owner, pods, current=current, update=update, now=hands.now)
    for type_, reason, message in plan.events:
        hands.tell(owner, type_, reason, message)
    wanted = [
        pod_of(
            owner,
            rules.template_for(owner, known[revision], ordinal),
            name=f"{owner['metadata']['name']}-{ordinal}",
        )
        for ordinal, revision in plan.create[: rules.BURST]
        if _have_claims(hands, owner, ordinal)
    ]
    hands.create(owner, wanted)
    hands.remove(owner, plan.delete[: rules.BURST])
    live = {one.labels.get(HASH_LABEL, "") for one in pods} | {current}
    revisions.truncate(hands, owner, history, live)
    hands.write_status(owner, plan.status)
    hands.look_again(plan.due_at)


def _have_claims(hands: Hands, owner: Manifest, ordinal: int) -> bool:
    """Create the claims of a pod that are not there; False, and an event, if one is refused."""
    for claim in rules.claims_for(owner, ordinal):
        try:
            objects.create(_CLAIM, hands.world.namespace, claim, now=hands.now)
        except AlreadyExists:
            continue
        except StatusError as error:
            name = claim["metadata"]["name"]
            text = f"create Claim {name} for Pod failed: {error.message}"
            hands.tell(owner, "Warning", "FailedCreate", text)
            hands.retry()
            return False
        hands.wrote = True
    return True
