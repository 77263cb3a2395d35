"""Plans: the effects of a change, and the operation that makes it (``/apis/stowage.dev/v1/plans``).

POST a ``Plan`` and an advisor predicts its outcome; the plan is stored under a name for a week.
``POST plans/NAME/apply`` predicts it again and starts the operation if the outcome is the same;
otherwise it answers 409 with the new plan and the differences.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
from rest_framework.decorators import action
from rest_framework.response import Response

from api import clock
from api.access import naming, naming_objects, outgoing
from api.forms import renderers, replies, wire
from api.forms.replies import MadeManifests
from api.kinds import own
from api.kinds.own import GROUP, OwnViewSet
from api.requests import Request
from clusterstate.access import authorizer
from clusterstate.access.rules import Attributes
from clusterstate.actions import brakes as approvals
from clusterstate.actions import plans as actions
from clusterstate.admission.request import User
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.values import causes
from clusterstate.objects.values.document import format_time
from clusterstate.objects.values.errors import BadRequest, Conflict, Forbidden
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.evictions import brakes
from clusterstate.queries.evictions.brakes import Brake
from clusterstate.queries.scheduler.plans import (
    DROPPED,
    HAS_FAILED,
    HEAD,
    HELD,
    IS_DONE,
    PLACES,
    PLURAL,
    TO_DO,
    StoredPlan,
    find_plan,
    latest_plans,
    undo_of,
)
from scheduling.answers import advisor

KIND: Final = Kind(name="Plan", group=GROUP, plural=PLURAL)
BRAKE: Final = Kind(name="Brake", group=GROUP)
_MANY = 100
_MOST_TOLD = 100
LANDINGS, LEAVING, NOTHING = "landings", "leaving", "nothing"
"""What must still hold of a prediction: all, which pods leave and why, or nothing."""
_OPERATIONS = ("apply", "pause", "resume", "cancel", "undo")


class PlansViewSet(OwnViewSet):
    """Plans and their operations."""

    kind = KIND.name
    resource = PLURAL
    asks = True
    no_past = "a plan is stored as predicted (status.at), with the present state of its operation"
    renderer_classes = renderers.OF_OBJECTS
    foretold: Manifest | None = None
    answer: bytes
    """An advisor's prediction for a new plan, as JSON text: it may be long."""

    def wants(self, request: Request) -> Iterable[Attributes]:
        """Return the rights that a request needs: predicting also reads, applying also writes."""
        name = self.kwargs.get(self.lookup_url_kwarg, "")
        if self.action in _OPERATIONS:
            yield Attributes(
                verb="create", group=GROUP, resource=PLURAL, subresource=self.action, name=name
            )
            if self.action in ("apply", "resume"):
                yield from self._rights(find_plan(name))
        else:
            yield from super().wants(request)
        if self.action in ("create", "undo"):
            yield from (Attributes(verb="list", resource=one) for one in ("nodes", "pods"))

    def _rights(self, plan: StoredPlan) -> Iterator[Attributes]:
        """Yield the right to each change of a plan, so that a refusal names the missing one.

        Raises:
            Forbidden: a user who may not list all pods lacks one; the message hides namespace and
                name.
        """
        if naming.reads_all(self.user):
            yield from rights(plan)
            return
        for one in rights(plan):
            if not authorizer.decide(self.user, one).allowed:
                what = f"{one.resource}/{one.subresource}" if one.subresource else one.resource
                raise Forbidden(
                    f'{PLURAL}.{GROUP} "{plan.name}" is forbidden: User "{self.user.name}" cannot'
                    f' {one.verb} resource "{what}" in API group "{one.group}" wherever it is'
                    " needed",
                    {"name": plan.name, "group": GROUP, "kind": PLURAL},
                )

    def list(self, request: Request) -> Response:
        """Return the latest plans, without the details of their predictions."""
        limit = wire.integer(request.query_params.get("limit"), "limit") or _MANY
        named = naming.reads_all(self.user)
        found = latest_plans(limit=min(limit, _MANY))
        items = [manifest(one, brief=True, named=named, reader=self.user) for one in found]
        return replies.reply(MadeManifests(KIND, items, {}))

    def retrieve(self, request: Request, name: str) -> Response:
        """Return a plan with the progress of its operation.

        A user who may not list all pods sees neither the pods that leave nor why steps failed.
        """
        named = naming.reads_all(self.user)
        plan = manifest(find_plan(name), named=named, reader=self.user)
        return replies.reply(MadeManifests(KIND, [plan], {}, alone=True))

    def inquire(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Ask an advisor to predict a new plan, or a plan to apply or undo."""
        if self.action == "create":
            naming_objects.require(self.user, request.data)
            outgoing.require_extenders(self.user, request.data)
            self.answer = advisor.ask_text("plan", request.data)
        elif self.action == "apply" and _holding(request) != NOTHING:
            plan = find_plan(kwargs["name"])
            actions.check_unapplied(plan)
            if not has_rounds(plan):
                self.foretold = advisor.ask("plan", plan.posted_document())
        elif self.action == "undo":
            self.foretold = advisor.ask("plan", _undone(find_plan(kwargs["name"])))

    def create(self, request: Request) -> Response:
        """Predict the effects of a change; the plan is stored unless ``dryRun=All``."""
        document = request.data
        if request.query_params.get("dryRun"):
            return replies.reply(_with_spec(self.answer, document.get("spec")), status=201)
        stored = predicted_plan(document, by=self.user, foretold=replies.decode(self.answer))
        return replies.reply(manifest(stored), status=201)

    @action(detail=True, methods=["post"])
    def apply(self, request: Request, name: str) -> Response:
        """Carry a plan out if its prediction holds (``?holding=leaving``: which pods leave)."""
        holding = _holding(request)
        begun = begin(find_plan(name), holding=holding, by=self.user, foretold=self.foretold)
        return self._operated(begun)

    @action(detail=True, methods=["post"])
    def pause(self, request: Request, name: str) -> Response:
        """Pause the operation."""
        return self._operated(actions.pause(name, now=clock.now()))

    @action(detail=True, methods=["post"])
    def resume(self, request: Request, name: str) -> Response:
        """Resume the operation."""
        return self._operated(actions.resume(name, now=clock.now()))

    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, name: str) -> Response:
        """End the operation; finished steps stay done."""
        return self._operated(actions.cancel(name, now=clock.now()))

    @action(detail=True, methods=["post"])
    def undo(self, request: Request, name: str) -> Response:
        """Return a new plan that reverses changes of nodes and replicas, but no evictions."""
        stored = undoing(find_plan(name), by=self.user, foretold=self.foretold)
        return replies.reply(manifest(stored, reader=self.user), status=201)

    def _operated(self, plan: StoredPlan) -> Response:
        """Return the progress of a plan's operation, without the details of its prediction."""
        named = naming.reads_all(self.user)
        shown = manifest(plan, brief=True, named=named, reader=self.user)
        return replies.reply(shown, status=201)


def _with_spec(answer: bytes, spec: Any) -> bytes:
    """Return a plan's answer with the spec inserted into the text, which is not parsed."""
    return b'%s,"spec":%s}' % (answer[:-1], replies.encode(spec))


def _holding(request: Request) -> str:
    """Return the parameter ``holding``: the part of the prediction that must still be true.

    Raises:
        BadRequest: the value is unknown.
    """
    holding = request.query_params.get("holding") or LANDINGS
    if holding not in (LANDINGS, LEAVING, NOTHING):
        text = f"supported values: {LANDINGS}, {LEAVING}, {NOTHING}"
        raise BadRequest(f'invalid value "{holding}" for holding: {text}')
    return holding


def predicted_plan(
    document: Manifest,
    *,
    by: User,
    foretold: Manifest | None = None,
    is_preview: bool = False,
    seconds: float | None = None,
) -> StoredPlan:
    """Predict the plan of a document and store it. Asks an advisor if ``foretold`` is missing.

    ``is_preview``: a page made the plan to show a preview; the user did not request one.
    ``seconds``: the longest wait for the advisor.

    Raises:
        Invalid: with every wrong field.
        Forbidden: it names extenders that ``by`` may not use.
    """
    naming_objects.require(by, document)
    outgoing.require_extenders(by, document)
    found: Manifest = foretold or advisor.ask("plan", document, deadline=seconds)
    return _store(document, found["status"], by=by, is_preview=is_preview)


def _store(
    document: Manifest, status: Manifest, *, by: User, is_preview: bool = False
) -> StoredPlan:
    return actions.store(document, status, by=by.name, now=clock.now(), is_preview=is_preview)


def begin(
    plan: StoredPlan,
    *,
    holding: str,
    by: User,
    foretold: Manifest | None = None,
    seconds: float | None = None,
) -> StoredPlan:
    """Start a plan's operation if its prediction still holds; the steps are the new prediction's.

    ``foretold`` is the new prediction; without it an advisor is asked, for ``seconds`` at most.

    Raises:
        Conflict: it does not hold (``details``: the new plan and the differences), or the plan was
            applied already.
    """
    actions.check_unapplied(plan)
    if holding != NOTHING and not has_rounds(plan):
        again: Manifest = foretold or advisor.ask("plan", plan.posted_document(), deadline=seconds)
        before = {**plan.prediction(), "steps": plan.to_do()}
        found = list(differences(before, again["status"], holding))
        if found:
            stored = _store(plan.posted_document(), again["status"], by=by)
            raise _changed(plan, stored, found, by=by)
    return actions.begin(plan.name, by=by.name, impersonator=by.impersonator, now=clock.now())


def undoing(
    plan: StoredPlan,
    *,
    by: User,
    foretold: Manifest | None = None,
    seconds: float | None = None,
) -> StoredPlan:
    """Return a new plan that reverses an operation's changes of nodes and replicas.

    Asks an advisor if ``foretold`` is missing, for ``seconds`` at most.

    Raises:
        Conflict: it made no change that can be undone.
    """
    return predicted_plan(_undone(plan), by=by, foretold=foretold, seconds=seconds)


def _undone(plan: StoredPlan) -> Manifest:
    """Return the document of the plan that undoes a plan.

    Raises:
        Conflict: it made no change that can be undone.
    """
    changes = taken_back(plan)
    if not changes:
        raise Conflict(
            f'plan "{plan.name}" has nothing that can be undone',
            {"name": plan.name, "group": GROUP, "kind": PLURAL},
        )
    return {"apiVersion": own.API_VERSION, "kind": "Plan", "spec": {"changes": changes}}


def has_rounds(plan: StoredPlan) -> bool:
    """Return whether a plan is carried out on a schedule."""
    return bool((plan.posted_document().get("spec") or {}).get("schedule"))


def rights(plan: StoredPlan) -> Iterator[Attributes]:
    """Yield the right to each change in a plan, each right once.

    For one with a schedule, the right to what any round may do.
    """
    if has_rounds(plan):
        yield Attributes(verb="patch", resource="nodes")
        yield Attributes(verb="create", resource="pods", subresource="eviction")
        yield Attributes(verb="create", resource="pods", namespace=PLACES)
        return
    seen: set[Attributes] = set()
    for step in plan.to_do():
        wanted = [_right(step)]
        if "place" in step:
            wanted.append(Attributes(verb="create", resource="pods", namespace=PLACES))
        for one in wanted:
            if one not in seen:
                seen.add(one)
                yield one


def _right(step: dict[str, Any]) -> Attributes:
    what = step["do"]
    if what == "evict":
        return Attributes(
            verb="create", resource="pods", subresource="eviction", namespace=step["namespace"]
        )
    if what == "remove":
        return Attributes(verb="delete", resource="pods", namespace=step["namespace"])
    if what == "create":
        kind = KINDS[step["kind"]]
        return Attributes(
            verb="create",
            group=kind.group,
            resource=kind.plural,
            namespace=step.get("namespace", ""),
        )
    if what == "scale":
        kind = KINDS[step["kind"]]
        return Attributes(
            verb="patch",
            group=kind.group,
            resource=kind.plural,
            subresource="scale",
            namespace=step["namespace"],
            name=step["name"],
        )
    if what == "delete":
        return Attributes(verb="delete", resource="nodes", name=step["name"])
    if what == "configuration":
        return Attributes(verb="update", group=GROUP, resource="schedulerconfiguration")
    subresource = "status" if "resize" in step["change"] else ""
    return Attributes(verb="patch", resource="nodes", subresource=subresource, name=step["name"])


def taken_back(plan: StoredPlan) -> list[Manifest]:
    """Return the changes that undo the finished steps of an operation.

    Each restores a node to its state before the step. Equal changes of several nodes in a row
    become one. Queries once.
    """
    found: list[Manifest] = []
    for change in undo_of(plan.id):
        ((what, entry),) = change.items()
        if "nodes" not in entry:
            found.append(change)
            continue
        rest = {key: value for key, value in entry.items() if key != "nodes"}
        last = found[-1].get(what) if found else None
        same = last is not None and {key: last[key] for key in last if key != "nodes"} == rest
        if last is not None and same and not {*last["nodes"]} & {*entry["nodes"]}:
            last["nodes"] += entry["nodes"]
        else:
            found.append({what: {"nodes": list(entry["nodes"]), **rest}})
    return found


def differences(before: Manifest, after: Manifest, holding: str) -> Iterator[Manifest]:
    """Yield the differences of two predictions: the pod, and the old and new text about it."""
    for part in ("leaving", "placed"):
        if part == "placed" and holding == LEAVING:
            continue
        then = {one["pod"]: one for one in before.get(part) or ()}
        now = {one["pod"]: one for one in after.get(part) or ()}
        for pod in dict.fromkeys([*then, *now]):
            was, is_ = (_essence(part, found.get(pod), holding) for found in (then, now))
            if was != is_:
                yield {"pod": pod, "part": part, "before": was, "after": is_}
    steps = [
        [step["subject"] for step in found["steps"] if step["do"] not in ("evict", "remove")]
        for found in (before, after)
    ]
    if steps[0] != steps[1]:
        yield {"part": "steps", "before": steps[0], "after": steps[1]}


def _essence(part: str, entry: Manifest | None, holding: str) -> Manifest | None:
    """Return the fields of a pod's prediction that must still be equal when a plan is applied."""
    if entry is None:
        return None
    if part == "placed":
        return {"nodeName": entry.get("nodeName")}
    found = {key: entry.get(key) for key in ("uid", "nodeName", "cause", "rule", "blockedBy")}
    if holding == LANDINGS:
        found["landing"] = (entry.get("landing") or {}).get("nodeName")
    return {key: value for key, value in found.items() if value is not None}


def _changed(plan: StoredPlan, new: StoredPlan, found: list[Manifest], *, by: User) -> Conflict:
    """Return the Conflict for a plan that does not hold, without causes that name pods."""
    named = naming.reads_all(by)
    causes = [
        {
            "reason": "PlanChanged",
            "field": one["part"],
            "message": f"{one.get('pod', '')}: {_text(one['before'])}, now {_text(one['after'])}",
        }
        for one in (found[:_MOST_TOLD] if named else ())
    ]
    return Conflict(
        f'Operation cannot be fulfilled on {PLURAL}.{GROUP} "{plan.name}": its prediction no'
        f" longer holds; the new plan is {new.name}",
        {
            "name": plan.name,
            "group": GROUP,
            "kind": PLURAL,
            "causes": causes,
            "plan": manifest(new, named=named, reader=by),
        },
    )


def _text(entry: object) -> str:
    return "nothing" if entry is None else msgspec.json.encode(entry).decode()


def manifest(
    plan: StoredPlan, *, brief: bool = False, named: bool = True, reader: User | None = None
) -> Manifest:
    """Return a plan as in the API; ``reader``: with the spec as this user may read it.

    ``brief``: without the leaving pods and their landings; not ``named``: also without messages,
    which may name pods.
    """
    posted, outcome = plan.posted_document(), plan.prediction()
    spec: Manifest = posted.get("spec") or {}
    metadata: Manifest = {
        "name": plan.name,
        "uid": str(causes.uid_of(causes.PLAN, plan.id)),
        "creationTimestamp": format_time(plan.created_at),
    }
    if plan.created_by:
        metadata["annotations"] = {f"{GROUP}/created-by": plan.created_by}
    status = dict(outcome)
    if brief or not named:
        status = {key: outcome[key] for key in HEAD if key in outcome}
    else:
        status["steps"] = _steps(plan)
    operation: Manifest = {
        "state": plan.state,
        "steps": len(plan.progress),
        "done": plan.progress.count(IS_DONE),
        "held": plan.progress.count(HELD),
        "failed": plan.progress.count(HAS_FAILED),
    }
    if plan.applied_at is not None:
        operation |= {
            "appliedBy": plan.applied_by,
            "appliedAt": format_time(plan.applied_at),
            "updatedAt": format_time(plan.updated_at),
        }
    if plan.message and named:
        operation["message"] = plan.message
    if plan.failures and named:
        operation["failures"] = list(plan.failures.values())
    return {
        "apiVersion": own.API_VERSION,
        "kind": "Plan",
        "metadata": metadata,
        "spec": spec if reader is None else naming_objects.visible_spec(reader, spec),
        "status": {**status, "operation": operation},
    }


_STATES: Final = {
    TO_DO: "ToDo", IS_DONE: "Done", HELD: "Held", HAS_FAILED: "Failed", DROPPED: "Dropped"
}  # fmt: skip


def _steps(plan: StoredPlan) -> list[Manifest]:
    """Return the steps of a plan and, if it was applied, the state of each."""
    steps = plan.to_do()
    if plan.applied_at is None:
        return steps
    return [
        {**step, "state": _STATES[state]} for step, state in zip(steps, plan.progress, strict=True)
    ]


class BrakesViewSet(OwnViewSet):
    """Zones, namespaces and owners whose evictions are held back, because there are too many."""

    kind = BRAKE.name
    resource = BRAKE.plural
    no_past = "a brake has its present state only; the changes of an evicted pod name the approval"
    renderer_classes = renderers.OF_OBJECTS

    def wants(self, request: Request) -> Iterable[Attributes]:
        """Return the right to read brakes, or to approve one."""
        if self.action == "approve":
            name = self.kwargs[self.lookup_url_kwarg]
            return (
                Attributes(
                    verb="create", group=GROUP, resource="brakes", subresource="approve", name=name
                ),
            )
        return super().wants(request)

    def list(self, request: Request) -> Response:
        """Return a BrakeList."""
        items = [_brake(one) for one in brakes.brakes()]
        return replies.reply(MadeManifests(BRAKE, items, {}))

    @action(detail=True, methods=["post"])
    def approve(self, request: Request, name: str) -> Response:
        """Approve the evictions that a brake holds back, for an hour."""
        found = approvals.approve(name, by=self.user.name, now=clock.now())
        return replies.reply(_brake(found), status=201)


def _brake(one: Brake) -> Manifest:
    status: Manifest = {"state": one.state, "leaving": one.leaving, "total": one.total}
    if one.approved_at is not None and one.until is not None:
        status |= {
            "approvedBy": one.approved_by,
            "approvedAt": format_time(one.approved_at),
            "until": format_time(one.until),
        }
    metadata: Manifest = {"name": one.key, "creationTimestamp": format_time(one.created_at)}
    if one.approval is not None:
        metadata["uid"] = str(causes.uid_of(causes.APPROVAL, one.approval))
    return {
        "apiVersion": own.API_VERSION,
        "kind": "Brake",
        "metadata": metadata,
        "spec": {"scope": one.scope, "name": one.name, "limitPercent": one.limit_percent},
        "status": status,
    }
