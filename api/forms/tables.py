"""Server-side printing: objects as rows of a ``Table``.

``kubectl get`` prints the server's table. Each kind has a function from manifest to cells, under
the columns that it fills (``cells.Printers``). Rules of the cells: Kubernetes
``pkg/printers/internalversion/printers.go``, v1.36. The clock is an argument.
"""

from collections.abc import Container, Iterable
from datetime import datetime
from typing import Final

from api.forms import own_tables, stored_tables
from api.forms.cells import (
    AGE,
    CONTAINERS,
    IMAGES,
    NAME,
    NONE,
    SELECTOR,
    TEMPLATE,
    UNKNOWN,
    Cells,
    Column,
    Printer,
    Printers,
    age_of,
    balancers_of,
    condition_of,
    containers_of,
    format_selector,
    name_of,
)
from api.forms.negotiation import V1
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.values.meta import Manifest

PRINTERS: Final = Printers(stored_tables.PRINTERS | own_tables.PRINTERS)


# ------------------------------------------------------------------------------------- pods


def _exit_reason(terminated: Manifest) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _restartable(container: Manifest) -> bool:
    return container.get("restartPolicy") == "Always"


_ENDED = {
    "Succeeded": "The pod has completed successfully.",
    "Failed": "The pod failed.",
}


def _pod_conditions(pod: Manifest) -> list[Manifest]:
    """Return the conditions of a pod's row: whether the pod has ended."""
    phase = (pod.get("status") or {}).get("phase", "")
    message = _ENDED.get(phase)
    if message is None:
        return []
    return [{"type": "Completed", "status": "True", "reason": phase, "message": message}]


def _restarted(container: Manifest) -> str:
    """Return when the previous run of a container ended, empty without one."""
    last = (container.get("lastState") or {}).get("terminated") or {}
    return last.get("finishedAt") or ""


def _pod_status(pod: Manifest) -> tuple[str, int, int, int, str]:
    """Return status text, ready containers, all containers, restarts, time of the last one.

    Rule: ``printPod``.
    """
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    sidecars = {c.get("name"): _restartable(c) for c in spec.get("initContainers") or []}
    total = len(spec.get("containers") or []) + sum(sidecars.values())
    ready = restarts = sidecar_restarts = 0
    last = sidecar_last = ""
    phase = status.get("phase", "")
    reason = status.get("reason") or phase
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            reason = "SchedulingGated"
    initializing = False
    statuses = status.get("initContainerStatuses") or []
    for index, container in enumerate(statuses):
        count = container.get("restartCount") or 0
        restarts += count
        last = max(last, _restarted(container))
        sidecar = sidecars.get(container.get("name"), False)
        if sidecar:
            sidecar_restarts += count
            sidecar_last = max(sidecar_last, _restarted(container))
        state = container.get("state") or {}
        terminated, waiting = state.get("terminated"), state.get("waiting")
        if terminated is not None and terminated.get("exitCode", 0) == 0:
            continue
        if sidecar and container.get("started"):
            ready += bool(container.get("ready"))
            continue
        initializing = True
        if terminated is not None:
            reason = f"Init:{_exit_reason(terminated)}"
        elif waiting is not None and waiting.get("reason") not in (None, "", "PodInitializing"):
            reason = f"Init:{waiting['reason']}"
        else:
            reason = f"Init:{index}/{len(spec.get('initContainers') or [])}"
        break
    if not initializing or condition_of(status, "Initialized") == "True":
        restarts, last = sidecar_restarts, sidecar_last
        running = False
        for container in reversed(status.get("containerStatuses") or []):
            restarts += container.get("restartCount") or 0
            last = max(last, _restarted(container))
            state = container.get("state") or {}
            terminated, waiting = state.get("terminated"), state.get("waiting")
            if waiting is not None and waiting.get("reason"):
                reason = waiting["reason"]
            elif terminated is not None:
                reason = _exit_reason(terminated)
            elif container.get("ready") and state.get("running") is not None:
                running = True
                ready += 1
        if reason == "Completed" and running:
            reason = "Running" if condition_of(status, "Ready") == "True" else "NotReady"
    if pod["metadata"].get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            reason = "Unknown"
        elif phase not in ("Succeeded", "Failed"):
            reason = "Terminating"
    return reason, ready, total, restarts, last


@PRINTERS.of(
    "Pod",
    NAME,
    "Ready, Status, Restarts",
    AGE,
    "IP::1, Node::1, Nominated Node::1, Readiness Gates::1",
    conditions=_pod_conditions,
)
def _pod(pod: Manifest, now: datetime) -> Cells:
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    reason, ready, total, restarts, last = _pod_status(pod)
    ago = f" ({age_of(last, now)} ago)" if restarts and last else ""
    addresses = status.get("podIPs") or []
    address = addresses[0].get("ip") if addresses else status.get("podIP")
    gates = spec.get("readinessGates") or []
    passed = sum(condition_of(status, gate.get("conditionType", "")) == "True" for gate in gates)
    return [
        f"{ready}/{total}",
        reason,
        f"{restarts}{ago}",
        address or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        f"{passed}/{len(gates)}" if gates else NONE,
    ]


# ------------------------------------------------------------------------------------ nodes

_ROLE = "node-role.kubernetes.io/"


@PRINTERS.of(
    "Node",
    NAME,
    "Status, Roles",
    AGE,
    "Version, Internal-IP::1, External-IP::1, OS-Image::1, Kernel-Version::1",
    "Container-Runtime::1",
)
def _node(node: Manifest, now: datetime) -> Cells:
    status = node.get("status") or {}
    labels = node["metadata"].get("labels") or {}
    ready = {"True": "Ready", "False": "NotReady", "Unknown": "NotReady"}
    state = ready.get(condition_of(status, "Ready"), "Unknown")
    if (node.get("spec") or {}).get("unschedulable"):
        state += ",SchedulingDisabled"
    roles = {key[len(_ROLE) :] for key in labels if key.startswith(_ROLE) and key != _ROLE}
    roles |= {v for key, v in labels.items() if key == "kubernetes.io/role" and v}
    addresses: dict[str, str] = {}
    for address in status.get("addresses") or []:
        addresses.setdefault(address.get("type", ""), address.get("address", ""))
    info = status.get("nodeInfo") or {}
    return [
        state,
        ",".join(sorted(roles)) or NONE,
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP") or NONE,
        addresses.get("ExternalIP") or NONE,
        info.get("osImage") or UNKNOWN,
        info.get("kernelVersion") or UNKNOWN,
        info.get("containerRuntimeVersion") or UNKNOWN,
    ]


# ----------------------------------------------------------------------------------- events


@PRINTERS.of(
    "Event",
    "Last Seen, Type, Reason, Object, Subobject::1, Source::1, Message",
    "First Seen::1, Count::1",
    Column("Name", format="name", priority=1),
)
def _event(event: Manifest, now: datetime) -> Cells:
    about = event.get("involvedObject") or {}
    series = event.get("series") or {}
    source = event.get("source") or {}
    first_time = event.get("firstTimestamp") or event.get("eventTime")
    first = age_of(first_time, now)
    last_time = series.get("lastObservedTime") or event.get("lastTimestamp")
    last = age_of(last_time, now) if last_time else first
    count = series.get("count") or event.get("count") or 1
    target = str(about.get("kind", "")).lower()
    if about.get("name"):
        target = f"{target}/{about['name']}"
    component = source.get("component") or event.get("reportingComponent") or ""
    instance = source.get("host") or event.get("reportingInstance")
    if instance:
        component = f"{component}, {instance}"
    return [
        last,
        event.get("type", ""),
        event.get("reason", ""),
        target,
        about.get("fieldPath", ""),
        component,
        str(event.get("message", "")).strip(),
        first,
        count,
        name_of(event),
    ]


# -------------------------------------------------------------------------------- workloads


@PRINTERS.of("Deployment", NAME, "Ready, Up-to-date, Available", AGE, *TEMPLATE)
def _deployment(item: Manifest, now: datetime) -> Cells:
    spec, status = item.get("spec") or {}, item.get("status") or {}
    names, images = containers_of((spec.get("template") or {}).get("spec") or {})
    return [
        f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}",
        status.get("updatedReplicas", 0),
        status.get("availableReplicas", 0),
        names,
        images,
        format_selector(spec.get("selector")),
    ]


@PRINTERS.of("ReplicaSet", NAME, "Desired:integer, Current:integer, Ready:integer", AGE, *TEMPLATE)
def _replica_set(item: Manifest, now: datetime) -> Cells:
    spec, status = item.get("spec") or {}, item.get("status") or {}
    names, images = containers_of((spec.get("template") or {}).get("spec") or {})
    return [
        spec.get("replicas", 0),
        status.get("replicas", 0),
        status.get("readyReplicas", 0),
        names,
        images,
        format_selector(spec.get("selector")),
    ]


@PRINTERS.of(
    "ReplicationController", NAME, "Desired:integer, Current:integer, Ready:integer", AGE, *TEMPLATE
)
def _replication_controller(item: Manifest, now: datetime) -> Cells:
    spec = item.get("spec") or {}
    selector = {"matchLabels": spec.get("selector") or {}}
    return [*_replica_set(item, now)[:5], format_selector(selector)]


@PRINTERS.of("StatefulSet", NAME, "Ready", AGE, CONTAINERS, IMAGES)
def _stateful_set(item: Manifest, now: datetime) -> Cells:
    spec, status = item.get("spec") or {}, item.get("status") or {}
    names, images = containers_of((spec.get("template") or {}).get("spec") or {})
    ready = f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}"
    return [ready, names, images]


@PRINTERS.of(
    "DaemonSet",
    NAME,
    "Desired:integer, Current:integer, Ready:integer, Up-to-date:integer",
    "Available:integer, Node Selector",
    AGE,
    *TEMPLATE,
)
def _daemon_set(item: Manifest, now: datetime) -> Cells:
    spec, status = item.get("spec") or {}, item.get("status") or {}
    template = (spec.get("template") or {}).get("spec") or {}
    names, images = containers_of(template)
    selector = {"matchLabels": template.get("nodeSelector") or {}}
    return [
        status.get("desiredNumberScheduled", 0),
        status.get("currentNumberScheduled", 0),
        status.get("numberReady", 0),
        status.get("updatedNumberScheduled", 0),
        status.get("numberAvailable", 0),
        format_selector(selector),
        names,
        images,
        format_selector(spec.get("selector")),
    ]


# ------------------------------------------------------------------------------------ others


@PRINTERS.of("RuntimeClass", NAME, "Handler", AGE)
def _runtime_class(item: Manifest, now: datetime) -> Cells:
    return [item.get("handler", "")]


@PRINTERS.of(
    "PriorityClass", NAME, "Value:integer, Global-Default:boolean", AGE, "PreemptionPolicy"
)
def _priority_class(item: Manifest, now: datetime) -> Cells:
    return [
        item.get("value", 0),
        bool(item.get("globalDefault", False)),
        item.get("preemptionPolicy", ""),
    ]


@PRINTERS.of("Namespace", NAME, "Status", AGE)
def _namespace(item: Manifest, now: datetime) -> Cells:
    phase = (item.get("status") or {}).get("phase", "Active")
    if item["metadata"].get("deletionTimestamp"):
        phase = "Terminating"
    return [phase]


@PRINTERS.of(
    "PodDisruptionBudget", NAME, "Min Available, Max Unavailable, Allowed Disruptions:integer", AGE
)
def _disruption_budget(item: Manifest, now: datetime) -> Cells:
    spec, status = item.get("spec") or {}, item.get("status") or {}
    minimum, maximum = spec.get("minAvailable"), spec.get("maxUnavailable")
    return [
        "N/A" if minimum is None else str(minimum),
        "N/A" if maximum is None else str(maximum),
        status.get("disruptionsAllowed", 0),
    ]


def _outside(spec: Manifest, status: Manifest) -> str:
    """Return a Service's external address. Rule: ``getServiceExternalIP``."""
    type_, own = spec.get("type", "ClusterIP"), spec.get("externalIPs") or []
    if type_ == "ExternalName":
        return str(spec.get("externalName", ""))
    if type_ == "LoadBalancer":
        return ",".join([*balancers_of(status), *own]) or "<pending>"
    return ",".join(own) or NONE


@PRINTERS.of("Service", NAME, "Type, Cluster-IP, External-IP, Port(s)", AGE, SELECTOR)
def _service(item: Manifest, now: datetime) -> Cells:
    spec = item.get("spec") or {}
    ports = ",".join(
        f"{port.get('port', '')}:{port['nodePort']}/{port.get('protocol', 'TCP')}"
        if port.get("nodePort")
        else f"{port.get('port', '')}/{port.get('protocol', 'TCP')}"
        for port in spec.get("ports") or []
    )
    return [
        spec.get("type", "ClusterIP"),
        spec.get("clusterIP") or NONE,
        _outside(spec, item.get("status") or {}),
        ports or NONE,
        format_selector({"matchLabels": spec.get("selector") or {}}),
    ]


@PRINTERS.of("Lease", NAME, "Holder", AGE)
def _lease(item: Manifest, now: datetime) -> Cells:
    return [(item.get("spec") or {}).get("holderIdentity", "")]


@PRINTERS.of("Scale", NAME, "Desired:integer, Available:integer", AGE)
def _scale(item: Manifest, now: datetime) -> Cells:
    desired, there = ((item.get(part) or {}).get("replicas", 0) for part in ("spec", "status"))
    return [desired, there]


@PRINTERS.of("RoleBinding", NAME, "Role", AGE, "Users::1, Groups::1, ServiceAccounts::1")
@PRINTERS.of("ClusterRoleBinding", NAME, "Role", AGE, "Users::1, Groups::1, ServiceAccounts::1")
def _binding(item: Manifest, now: datetime) -> Cells:
    role = item.get("roleRef") or {}
    named: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for subject in item.get("subjects") or ():
        kind, name = subject.get("kind", ""), subject.get("name", "")
        if kind == "ServiceAccount":
            name = f"{subject.get('namespace', '')}/{name}"
        named.setdefault(kind, []).append(name)
    return [
        f"{role.get('kind', '')}/{role.get('name', '')}",
        *(", ".join(named[kind]) for kind in ("User", "Group", "ServiceAccount")),
    ]


def _anything(item: Manifest, now: datetime) -> Cells:
    return [item["metadata"].get("creationTimestamp")]


_ANYTHING = Printer([NAME, Column("Created At", type="date")], _anything)


def printer(kind: Kind) -> Printer:
    """Return the printer of a kind; name and creation time for kinds without their own."""
    return PRINTERS.get(kind.name, _ANYTHING)


def row(
    kind: Kind,
    item: Manifest,
    *,
    now: datetime,
    include: str = "Metadata",
    version: str = V1,
    defaults: Container[str] = (),
) -> Manifest:
    """Return one row; ``include`` is ``Metadata``, ``Object`` or ``None``.

    ``defaults`` are the names of the objects that are marked as default ones.
    """
    how = printer(kind)
    result: Manifest = {"cells": how.cells(item, now, defaults)}
    if how.conditions is not None and (conditions := how.conditions(item)):
        result["conditions"] = conditions
    if include == "Object":
        result["object"] = item
    elif include == "Metadata":
        result["object"] = {
            "kind": "PartialObjectMetadata",
            "apiVersion": version,
            "metadata": item["metadata"],
        }
    return result


def table(
    kind: Kind,
    items: Iterable[Manifest],
    metadata: Manifest,
    *,
    now: datetime,
    include: str = "Metadata",
    headed: bool = True,
    version: str = V1,
) -> Manifest:
    """Return a ``Table`` of ``items``; ``headed`` False leaves the column definitions out.

    ``version``: of meta.k8s.io, for the Table and the metadata in its rows.
    """
    how = printer(kind)
    if how.place is not None:
        items = sorted(items, key=how.place)
    defaults: Container[str] = ()
    if how.defaults is not None:
        items = list(items)
        defaults = how.defaults(items)
    return {
        "kind": "Table",
        "apiVersion": version,
        "metadata": metadata,
        "columnDefinitions": how.columns if headed else None,
        "rows": [
            row(kind, item, now=now, include=include, version=version, defaults=defaults)
            for item in items
        ],
    }
