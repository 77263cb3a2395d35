"""Priority: the integer priority of a pod or a PodGroup comes from its PriorityClass alone.

Rule: plugin/pkg/admission/priority/admission.go, v1.36.
"""

from clusterstate.admission.request import CREATE, UPDATE, Context, Request
from clusterstate.objects.values.errors import BadRequest

PREEMPT_LOWER_PRIORITY = "PreemptLowerPriority"
GROUPS = frozenset({"PodGroup"})
"""Kinds besides pods whose priority is resolved in the same way."""


def admit(request: Request) -> None:
    """Resolve ``priorityClassName`` to ``priority`` and ``preemptionPolicy``.

    An update that omits the values keeps those of the stored pod: clients that know neither field
    would otherwise clear them.

    Raises:
        Forbidden: the class does not exist, or the pod states another value than the class.
    """
    if not request.is_pod() and (request.kind not in GROUPS or request.subresource):
        return
    spec = request.manifest.setdefault("spec", {})
    if request.operation == UPDATE:
        old = (request.old or {}).get("spec") or {}
        for name in ("priority", "preemptionPolicy"):
            if spec.get(name) is None and old.get(name) is not None:
                spec[name] = old[name]
        return
    if request.operation != CREATE:
        return
    class_name = spec.get("priorityClassName") or ""
    if class_name:
        priority_class = request.context.priority_class(class_name)
        if priority_class is None:
            raise request.forbidden(f"no PriorityClass with name {class_name} was found")
        value, policy = priority_class.get("value", 0), priority_class.get("preemptionPolicy")
    else:
        class_name, value, policy = default_priority(request.context)
        if class_name:
            spec["priorityClassName"] = class_name
    priority = spec.get("priority")
    if priority is not None and priority != value:
        raise request.forbidden(
            f"the integer value of priority ({priority}) must not be provided in {_named(request)} "
            f"spec; priority admission controller computed {value} from the given PriorityClass "
            "name"
        )
    spec["priority"] = value
    if policy is None:
        return
    stated_policy = spec.get("preemptionPolicy")
    if stated_policy is not None and stated_policy != policy:
        raise request.forbidden(
            f"the string value of PreemptionPolicy ({stated_policy}) must not be provided in "
            f"{_named(request)} spec; priority admission controller computed {policy} from the "
            "given PriorityClass name"
        )
    spec["preemptionPolicy"] = policy


def _named(request: Request) -> str:
    return "pod group" if request.kind in GROUPS else "pod"


def default_priority(context: Context) -> tuple[str, int, str | None]:
    """Return name, value and preemption policy of the default class; ``("", 0, ...)`` if none."""
    priority_class = context.default_priority_class()
    if priority_class is None:
        return "", 0, PREEMPT_LOWER_PRIORITY
    return (
        priority_class["metadata"]["name"],
        priority_class.get("value", 0),
        priority_class.get("preemptionPolicy"),
    )


def validate(request: Request) -> None:
    """Refuse a second PriorityClass with ``globalDefault``.

    Raises:
        Forbidden: another class is the default already.
        BadRequest: the body is no PriorityClass.
    """
    if request.subresource or request.operation not in (CREATE, UPDATE):
        return
    if request.manifest.get("kind", "PriorityClass") != "PriorityClass":
        raise BadRequest(
            "resource was marked with kind PriorityClass but was unable to be converted"
        )
    if not request.manifest.get("globalDefault"):
        return
    default = request.context.default_priority_class()
    if default is None:
        return
    name = default["metadata"]["name"]
    own_name = (request.manifest.get("metadata") or {}).get("name")
    if request.operation == CREATE or name != own_name:
        raise request.forbidden(
            f"PriorityClass {name} is already marked as default. Only one default can exist"
        )
