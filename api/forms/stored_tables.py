"""The columns of the kinds in the shared table, as ``kubectl get`` prints them.

Of a Secret only the number of keys is shown. Rules: Kubernetes
``pkg/printers/internalversion/printers.go``, v1.36.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Final

from api.forms.cells import (
    AGE,
    NAME,
    NONE,
    TEMPLATE,
    UNKNOWN,
    UNSET,
    Cells,
    Column,
    Printers,
    age_of,
    balancers_of,
    condition_of,
    containers_of,
    format_selector,
    human_duration,
    joined,
    name_of,
    parse_time,
)
from clusterstate.objects.registry.older_pod_groups import SCHEDULED
from clusterstate.objects.rules.default_classes import choose, is_default
from clusterstate.objects.values.meta import Manifest

_MOST = 3
"""How many hosts, ports or addresses stand in a cell."""
_MOST_METRICS = 2
_FORMER_CLASS = "volume.beta.kubernetes.io/storage-class"
_MODES = {
    "ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}  # fmt: skip

PRINTERS: Final = Printers()


def _some(values: Iterable[str], *, most: int = _MOST, between: str = ",") -> str:
    """Return the first values and the number of the others."""
    found = list(values)
    more = f" + {len(found) - most} more..." if len(found) > most else ""
    return between.join(found[:most]) + more


def _boolean(value: Any) -> str:
    return UNSET if value is None else str(bool(value))


# Configuration --------------------------------------------------------------------------------


@PRINTERS.of("ConfigMap", NAME, "Data", AGE)
def _config_map(item: Manifest, now: datetime) -> Cells:
    return [len(item.get("data") or ()) + len(item.get("binaryData") or ())]


@PRINTERS.of("Secret", NAME, "Type, Data", AGE)
def _secret(item: Manifest, now: datetime) -> Cells:
    return [item.get("type", ""), len(item.get("data") or ())]


@PRINTERS.of("ServiceAccount", NAME, "Secrets", AGE)
def _service_account(item: Manifest, now: datetime) -> Cells:
    return [len(item.get("secrets") or ())]


@PRINTERS.of("PodTemplate", NAME, "Containers, Images, Pod Labels")
def _pod_template(item: Manifest, now: datetime) -> Cells:
    template = item.get("template") or {}
    names, images = containers_of(template.get("spec") or {})
    labels = (template.get("metadata") or {}).get("labels") or {}
    return [names, images, format_selector({"matchLabels": labels})]


@PRINTERS.of("ControllerRevision", NAME, "Controller, Revision", AGE)
def _controller_revision(item: Manifest, now: datetime) -> Cells:
    owner = NONE
    for one in item["metadata"].get("ownerReferences") or ():
        if one.get("controller"):
            group = str(one.get("apiVersion", "")).rpartition("/")[0]
            kind = str(one.get("kind", "")).lower()
            owner = f"{kind}.{group}/{one.get('name')}" if group else f"{kind}/{one.get('name')}"
    return [owner, item.get("revision", 0)]


@PRINTERS.of("ResourceQuota", NAME, "Request, Limit", AGE)
def _resource_quota(item: Manifest, now: datetime) -> Cells:
    """Rule: ``printResourceQuota``: the amounts of the status, limits apart."""
    status = item.get("status") or {}
    used = status.get("used") or {}
    shown: dict[bool, list[str]] = {False: [], True: []}
    for name, hard in sorted((status.get("hard") or {}).items()):
        shown[name.startswith("limits.")].append(f"{name}: {used.get(name, '0')}/{hard}")
    return [", ".join(shown[one]) for one in (False, True)]


# Work -----------------------------------------------------------------------------------------


def _job_state(item: Manifest) -> str:
    status = item.get("status") or {}
    for name, shown in (("Complete", "Complete"), ("Failed", "Failed")):
        if condition_of(status, name) == "True":
            return shown
    if item["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for name in ("Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if condition_of(status, name) == "True":
            return name
    return "Running"


@PRINTERS.of("Job", NAME, "Status, Completions, Duration", AGE, *TEMPLATE)
def _job(item: Manifest, now: datetime) -> Cells:
    spec, status = item.get("spec") or {}, item.get("status") or {}
    done, completions_ = status.get("succeeded", 0), spec.get("completions")
    if completions_ is not None:
        completions = f"{done}/{completions_}"
    elif (spec.get("parallelism") or 0) > 1:
        completions = f"{done}/1 of {spec['parallelism']}"
    else:
        completions = f"{done}/1"
    begin, end = parse_time(status.get("startTime")), parse_time(status.get("completionTime"))
    duration = "" if begin is None else human_duration(((end or now) - begin).total_seconds())
    names, images = containers_of((spec.get("template") or {}).get("spec") or {})
    return [
        _job_state(item),
        completions,
        duration,
        names,
        images,
        format_selector(spec.get("selector")),
    ]


@PRINTERS.of(
    "CronJob",
    NAME,
    "Schedule, Timezone, Suspend:boolean, Active:integer, Last Schedule",
    AGE,
    *TEMPLATE,
)
def _cron_job(item: Manifest, now: datetime) -> Cells:
    spec, status = item.get("spec") or {}, item.get("status") or {}
    job = (spec.get("jobTemplate") or {}).get("spec") or {}
    names, images = containers_of((job.get("template") or {}).get("spec") or {})
    last = status.get("lastScheduleTime")
    return [
        spec.get("schedule", ""),
        spec.get("timeZone") or NONE,
        _boolean(spec.get("suspend")),
        len(status.get("active") or ()),
        age_of(last, now) if last else NONE,
        names,
        images,
        format_selector(job.get("selector")),
    ]


_AVERAGED: Final = ("Pods", "Resource", "ContainerResource")
"""Types of metrics of which an amount is always an average, so that no cell says that."""


def _amount(value: Manifest, type_: str) -> tuple[str, str]:
    """Return the text of a metric's target or current value, and its suffix."""
    if value.get("averageValue") is not None:
        return str(value["averageValue"]), "" if type_ in _AVERAGED else " (avg)"
    if type_ in ("Resource", "ContainerResource"):
        share = value.get("averageUtilization")
        return "<auto>" if share is None else f"{share}%", ""
    return str(value.get("value", UNKNOWN)), ""


def _metrics(spec: Manifest, status: Manifest) -> str:
    """Return the metrics of an autoscaler with their current values: ``formatHPAMetrics``."""
    current = status.get("currentMetrics") or []
    found = []
    for index, metric in enumerate(spec.get("metrics") or ()):
        type_ = str(metric.get("type", ""))
        field = type_[:1].lower() + type_[1:]
        source = metric.get(field) or {}
        status_ = (current[index].get(field) or {}) if index < len(current) else {}
        target = source.get("target") or {}
        target_text, suffix = _amount(target, type_)
        measured = status_.get("current") or {}
        alike = [one for one in ("averageValue", "averageUtilization", "value") if one in target]
        is_known = any(measured.get(one) is not None for one in alike)
        now_at = _amount({one: measured.get(one) for one in alike}, type_)[0]
        named = f"{source['name']}: " if type_ in ("Resource", "ContainerResource") else ""
        found.append(f"{named}{now_at if is_known else UNKNOWN}/{target_text}{suffix}")
    return _some(found, most=_MOST_METRICS, between=", ") or NONE


@PRINTERS.of("HorizontalPodAutoscaler", NAME, "Reference, Targets, MinPods, MaxPods, Replicas", AGE)
def _autoscaler(item: Manifest, now: datetime) -> Cells:
    spec, status = item.get("spec") or {}, item.get("status") or {}
    target, least = spec.get("scaleTargetRef") or {}, spec.get("minReplicas")
    return [
        f"{target.get('kind', '')}/{target.get('name', '')}",
        _metrics(spec, status),
        UNSET if least is None else str(least),
        spec.get("maxReplicas", 0),
        status.get("currentReplicas", 0),
    ]


# The network ----------------------------------------------------------------------------------


@PRINTERS.of("Endpoints", NAME, "Endpoints", AGE)
def _endpoints(item: Manifest, now: datetime) -> Cells:
    """Rule: ``formatEndpoints``."""
    subsets = item.get("subsets") or ()
    pairs = [
        joined(address.get("ip", ""), port.get("port", 0)) if port else address.get("ip", "")
        for subset in subsets
        for port in subset.get("ports") or (None,)
        for address in subset.get("addresses") or ()
    ]
    return [_some(pairs) if subsets else NONE]


@PRINTERS.of("EndpointSlice", NAME, "AddressType, Ports, Endpoints", AGE)
def _endpoint_slice(item: Manifest, now: datetime) -> Cells:
    """Rules: ``formatDiscoveryPorts``, ``formatDiscoveryEndpoints``."""
    ports = [str(port.get("port") or port.get("name", "*")) for port in item.get("ports") or ()]
    addresses = [
        address for one in item.get("endpoints") or () for address in one.get("addresses") or ()
    ]
    return [item.get("addressType", ""), _some(ports) or UNSET, _some(addresses) or UNSET]


def _hosts(rules: Sequence[Manifest]) -> str:
    """Return the first hosts of an Ingress and how many rules are left: ``formatHosts``."""
    found: list[str] = []
    more = ""
    for rule in rules:
        if len(found) == _MOST:
            more = f" + {len(rules) - _MOST} more..."
        elif rule.get("host"):
            found.append(rule["host"])
    return (",".join(found) or "*") + more


@PRINTERS.of("Ingress", NAME, "Class, Hosts, Address, Ports", AGE)
def _ingress(item: Manifest, now: datetime) -> Cells:
    spec = item.get("spec") or {}
    return [
        spec.get("ingressClassName") or NONE,
        _hosts(spec.get("rules") or ()),
        ",".join(balancers_of(item.get("status") or {})),
        "80, 443" if spec.get("tls") else "80",
    ]


def _marked(kind: str) -> Callable[[Sequence[Manifest]], set[str]]:
    """Return a function that returns the names of the classes marked as default."""
    return lambda classes: {name_of(one) for one in classes if is_default(kind, one)}


@PRINTERS.of("IngressClass", NAME, "Controller, Parameters", AGE, defaults=_marked("IngressClass"))
def _ingress_class(item: Manifest, now: datetime) -> Cells:
    spec = item.get("spec") or {}
    named = spec.get("parameters")
    parameters = NONE
    if named:
        group = f".{named['apiGroup']}" if named.get("apiGroup") else ""
        parameters = f"{named.get('kind', '')}{group}/{named.get('name', '')}"
    return [spec.get("controller", ""), parameters]


@PRINTERS.of("ServiceCIDR", NAME, "CIDRs", AGE)
def _service_cidr(item: Manifest, now: datetime) -> Cells:
    blocks = (item.get("spec") or {}).get("cidrs") or ()
    return [",".join(blocks)]


@PRINTERS.of("IPAddress", NAME, "ParentRef", AGE)
def _ip_address(item: Manifest, now: datetime) -> Cells:
    parent = (item.get("spec") or {}).get("parentRef") or {}
    resource = ".".join(filter(None, (parent.get("resource"), parent.get("group")))).lower()
    parts = (resource, parent.get("namespace"), parent.get("name"))
    return ["/".join(filter(None, parts)) or NONE]


def _flow_place(item: Manifest) -> tuple[int, str]:
    """Return the sort key of FlowSchemas: by matching precedence."""
    return (item.get("spec") or {}).get("matchingPrecedence", 0), name_of(item)


@PRINTERS.of(
    "FlowSchema",
    NAME,
    "PriorityLevel, MatchingPrecedence, DistinguisherMethod",
    AGE,
    "MissingPL",
    place=_flow_place,
)
def _flow_schema(item: Manifest, now: datetime) -> Cells:
    spec = item.get("spec") or {}
    dangling = (item.get("status") or {}).get("conditions") or ()
    missing = next((one.get("status") for one in dangling if one.get("type") == "Dangling"), "?")
    method = (spec.get("distinguisherMethod") or {}).get("type") or "<none>"
    level = (spec.get("priorityLevelConfiguration") or {}).get("name", "")
    place = spec.get("matchingPrecedence", 0)
    return [level, place, method, missing]


@PRINTERS.of(
    "PriorityLevelConfiguration",
    NAME,
    "Type, NominalConcurrencyShares, Queues, HandSize, QueueLengthLimit",
    AGE,
)
def _priority_level(item: Manifest, now: datetime) -> Cells:
    spec = item.get("spec") or {}
    limited = spec.get("limited") or {}
    queuing = (limited.get("limitResponse") or {}).get("queuing") or {}
    return [
        spec.get("type", ""),
        limited.get("nominalConcurrencyShares", NONE),
        *(queuing.get(one, NONE) for one in ("queues", "handSize", "queueLengthLimit")),
    ]


@PRINTERS.of("NetworkPolicy", NAME, "Pod-Selector", AGE)
def _network_policy(item: Manifest, now: datetime) -> Cells:
    selector = (item.get("spec") or {}).get("podSelector")
    return [format_selector(selector)]


# Volumes --------------------------------------------------------------------------------------


def _modes(modes: Iterable[str]) -> str:
    present = set(modes)
    return ",".join(short for mode, short in _MODES.items() if mode in present)


def _class_of(item: Manifest) -> str:
    """Return the StorageClass of a volume or a claim; an old annotation takes precedence.

    Rule: ``GetPersistentVolumeClass``, pkg/apis/core/helper/helpers.go.
    """
    former = (item["metadata"].get("annotations") or {}).get(_FORMER_CLASS)
    if former is not None:
        return str(former)
    return (item.get("spec") or {}).get("storageClassName") or ""


@PRINTERS.of(
    "PersistentVolume",
    NAME,
    "Capacity, Access Modes, Reclaim Policy, Status, Claim, StorageClass",
    "VolumeAttributesClass, Reason",
    AGE,
    "VolumeMode::1",
)
def _volume(item: Manifest, now: datetime) -> Cells:
    spec, status = item.get("spec") or {}, item.get("status") or {}
    claim = spec.get("claimRef") or {}
    leaving = item["metadata"].get("deletionTimestamp")
    return [
        (spec.get("capacity") or {}).get("storage", "0"),
        _modes(spec.get("accessModes") or ()),
        spec.get("persistentVolumeReclaimPolicy", ""),
        "Terminating" if leaving else status.get("phase", ""),
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "",
        _class_of(item),
        spec.get("volumeAttributesClassName") or UNSET,
        status.get("reason", ""),
        spec.get("volumeMode") or UNSET,
    ]


@PRINTERS.of(
    "PersistentVolumeClaim",
    NAME,
    "Status, Volume, Capacity, Access Modes, StorageClass, VolumeAttributesClass",
    AGE,
    "VolumeMode::1",
)
def _claim(item: Manifest, now: datetime) -> Cells:
    spec, status = item.get("spec") or {}, item.get("status") or {}
    bound = bool(spec.get("volumeName"))
    leaving = item["metadata"].get("deletionTimestamp")
    return [
        "Terminating" if leaving else status.get("phase", ""),
        spec.get("volumeName", ""),
        (status.get("capacity") or {}).get("storage", "0") if bound else "",
        _modes(status.get("accessModes") or ()) if bound else "",
        _class_of(item),
        spec.get("volumeAttributesClassName") or UNSET,
        spec.get("volumeMode") or UNSET,
    ]


def _newest_default(classes: Sequence[Manifest]) -> tuple[str]:
    """Return the StorageClass that a claim without one gets, of several that are marked.

    Rule: pkg/registry/storage/storageclass/storage/storage.go, v1.37 (#135964).
    """
    return (choose("StorageClass", classes),)


@PRINTERS.of(
    "StorageClass",
    NAME,
    "Provisioner, ReclaimPolicy, VolumeBindingMode, AllowVolumeExpansion",
    AGE,
    defaults=_newest_default,
)
def _storage_class(item: Manifest, now: datetime) -> Cells:
    return [
        item.get("provisioner", ""),
        item.get("reclaimPolicy", "Delete"),
        item.get("volumeBindingMode") or "Immediate",
        bool(item.get("allowVolumeExpansion")),
    ]


@PRINTERS.of(
    "VolumeAttributesClass", NAME, "DriverName", AGE, defaults=_marked("VolumeAttributesClass")
)
def _volume_attributes_class(item: Manifest, now: datetime) -> Cells:
    return [item.get("driverName", "")]


@PRINTERS.of(
    "CSIDriver",
    NAME,
    "AttachRequired:boolean, PodInfoOnMount:boolean, StorageCapacity:boolean",
    "TokenRequests, RequiresRepublish:boolean, Modes",
    AGE,
)
def _csi_driver(item: Manifest, now: datetime) -> Cells:
    spec = item.get("spec") or {}
    audiences = [one.get("audience", "") for one in spec.get("tokenRequests") or ()]
    return [
        bool(spec.get("attachRequired", True)),
        bool(spec.get("podInfoOnMount")),
        bool(spec.get("storageCapacity")),
        ",".join(audiences) or UNSET,
        bool(spec.get("requiresRepublish")),
        ",".join(spec.get("volumeLifecycleModes") or ()) or NONE,
    ]


@PRINTERS.of("CSINode", NAME, "Drivers:integer", AGE)
def _csi_node(item: Manifest, now: datetime) -> Cells:
    drivers = (item.get("spec") or {}).get("drivers") or ()
    return [len(drivers)]


@PRINTERS.of("CSIStorageCapacity", NAME, "StorageClassName, Capacity")
def _csi_storage_capacity(item: Manifest, now: datetime) -> Cells:
    return [item.get("storageClassName", ""), item.get("capacity", UNSET)]


@PRINTERS.of(
    "VolumeAttachment", NAME, Column("Attacher", format="name"), "PV, Node, Attached:boolean", AGE
)
def _volume_attachment(item: Manifest, now: datetime) -> Cells:
    spec = item.get("spec") or {}
    return [
        spec.get("attacher", ""),
        (spec.get("source") or {}).get("persistentVolumeName", ""),
        spec.get("nodeName", ""),
        bool((item.get("status") or {}).get("attached")),
    ]


# Devices and certificates ---------------------------------------------------------------------


@PRINTERS.of("DeviceClass", NAME, AGE)
@PRINTERS.of("DeviceTaintRule", NAME, AGE)
@PRINTERS.of("ResourceClaimTemplate", NAME, AGE)
def _named(item: Manifest, now: datetime) -> Cells:
    return []


@PRINTERS.of("ResourceClaim", NAME, "State", AGE)
def _resource_claim(item: Manifest, now: datetime) -> Cells:
    status = item.get("status") or {}
    states = ["deleted"] if item["metadata"].get("deletionTimestamp") else []
    if status.get("allocation") is None:
        states += [] if states else ["pending"]
    else:
        states.append("allocated")
        states += ["reserved"] if status.get("reservedFor") else []
    return [",".join(states)]


@PRINTERS.of("ResourceSlice", NAME, "Node, Driver, Pool", AGE)
def _resource_slice(item: Manifest, now: datetime) -> Cells:
    spec = item.get("spec") or {}
    pool = (spec.get("pool") or {}).get("name", "")
    node = spec.get("nodeName") or UNSET
    return [node, spec.get("driver", ""), pool]


# Groups of pods -------------------------------------------------------------------------------


def _policy(spec: Manifest) -> str:
    gang = (spec.get("schedulingPolicy") or {}).get("gang")
    return "Basic" if gang is None else "Gang"


@PRINTERS.of("PodGroup", NAME, "Policy, Min-Count:integer, Scheduled, Workload", AGE)
def _pod_group(item: Manifest, now: datetime) -> Cells:
    spec = item.get("spec") or {}
    gang = (spec.get("schedulingPolicy") or {}).get("gang") or {}
    conditions = (item.get("status") or {}).get("conditions") or ()
    states = [one.get("status") for one in conditions if one.get("type") == SCHEDULED]
    workload = (spec.get("workloadRef") or {}).get("workloadName")
    return [
        _policy(spec), gang.get("minCount", 0), (states or ["Unknown"])[0],
        workload or NONE,
    ]  # fmt: skip


@PRINTERS.of("Workload", NAME, "Controller, Pod-Groups:integer", AGE)
def _workload(item: Manifest, now: datetime) -> Cells:
    spec = item.get("spec") or {}
    owner = spec.get("controllerRef") or {}
    name = f"{owner['kind']}/{owner.get('name')}" if owner.get("kind") else NONE
    return [name, len(spec.get("podGroupTemplates") or ())]


@PRINTERS.of(
    "CertificateSigningRequest", NAME, AGE, "SignerName, Requestor, RequestedDuration, Condition"
)
def _certificate_request(item: Manifest, now: datetime) -> Cells:
    spec, status = item.get("spec") or {}, item.get("status") or {}
    types = {one.get("type") for one in status.get("conditions") or ()}
    states = [name for name in ("Approved", "Denied") if name in types][-1:] or ["Pending"]
    states += ["Failed"] if "Failed" in types else []
    states += ["Issued"] if status.get("certificate") else []
    life = spec.get("expirationSeconds")
    return [
        spec.get("signerName", ""),
        spec.get("username", ""),
        NONE if life is None else human_duration(life),
        ",".join(states),
    ]
