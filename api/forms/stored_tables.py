"""The columns of the kinds in the shared table, as ``kubectl get`` prints them.

Of a Secret only the number of keys is shown. Rules: Kubernetes
``pkg/printers/internalversion/printers.go``, v1.36.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

from api.forms.cells import (
    AGE,
    CONTAINERS,
    IMAGES,
    NAME,
    NONE,
    SELECTOR,
    UNKNOWN,
    UNSET,
    Cells,
    Column,
    Printer,
    age_of,
    balancers_of,
    columns_of,
    condition_of,
    containers_of,
    created,
    format_selector,
    human_duration,
    joined,
    name_of,
    parse_time,
)
from clusterstate.objects.default_classes import is_default
from clusterstate.objects.meta import Manifest

_MOST = 3
"""How many hosts, ports or addresses stand in a cell."""
_MOST_METRICS = 2
_FORMER_CLASS = "volume.beta.kubernetes.io/storage-class"
_MODES = {
    "ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}  # fmt: skip


def _some(values: Iterable[str], *, most: int = _MOST, between: str = ",") -> str:
    """Return the first values and how many more there are."""
    found = list(values)
    more = f" + {len(found) - most} more..." if len(found) > most else ""
    return between.join(found[:most]) + more


def _boolean(value: Any) -> str:
    return UNSET if value is None else str(bool(value))


# Configuration --------------------------------------------------------------------------------


def _config_map(item: Manifest, now: datetime) -> Cells:
    count = len(item.get("data") or ()) + len(item.get("binaryData") or ())
    return [name_of(item), count, created(item, now)]


def _secret(item: Manifest, now: datetime) -> Cells:
    return [name_of(item), item.get("type", ""), len(item.get("data") or ()), created(item, now)]


def _service_account(item: Manifest, now: datetime) -> Cells:
    return [name_of(item), len(item.get("secrets") or ()), created(item, now)]


def _pod_template(item: Manifest, now: datetime) -> Cells:
    template = item.get("template") or {}
    names, images = containers_of(template.get("spec") or {})
    labels = (template.get("metadata") or {}).get("labels") or {}
    return [name_of(item), names, images, format_selector({"matchLabels": labels})]


def _controller_revision(item: Manifest, now: datetime) -> Cells:
    owner = NONE
    for one in item["metadata"].get("ownerReferences") or ():
        if one.get("controller"):
            group = str(one.get("apiVersion", "")).rpartition("/")[0]
            kind = str(one.get("kind", "")).lower()
            owner = f"{kind}.{group}/{one.get('name')}" if group else f"{kind}/{one.get('name')}"
    return [name_of(item), owner, item.get("revision", 0), created(item, now)]


def _resource_quota(item: Manifest, now: datetime) -> Cells:
    """Rule: ``printResourceQuota``: what stands in the status, limits apart."""
    status = item.get("status") or {}
    used = status.get("used") or {}
    shown: dict[bool, list[str]] = {False: [], True: []}
    for name, hard in sorted((status.get("hard") or {}).items()):
        shown[name.startswith("limits.")].append(f"{name}: {used.get(name, '0')}/{hard}")
    return [name_of(item), *(", ".join(shown[one]) for one in (False, True)), created(item, now)]


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


def _job(item: Manifest, now: datetime) -> Cells:
    spec, status = item.get("spec") or {}, item.get("status") or {}
    done, wanted = status.get("succeeded", 0), spec.get("completions")
    if wanted is not None:
        completions = f"{done}/{wanted}"
    elif (spec.get("parallelism") or 0) > 1:
        completions = f"{done}/1 of {spec['parallelism']}"
    else:
        completions = f"{done}/1"
    begin, end = parse_time(status.get("startTime")), parse_time(status.get("completionTime"))
    duration = "" if begin is None else human_duration(((end or now) - begin).total_seconds())
    names, images = containers_of((spec.get("template") or {}).get("spec") or {})
    return [
        name_of(item), _job_state(item), completions, duration, created(item, now), names, images,
        format_selector(spec.get("selector")),
    ]  # fmt: skip


def _cron_job(item: Manifest, now: datetime) -> Cells:
    spec, status = item.get("spec") or {}, item.get("status") or {}
    job = (spec.get("jobTemplate") or {}).get("spec") or {}
    names, images = containers_of((job.get("template") or {}).get("spec") or {})
    last = status.get("lastScheduleTime")
    return [
        name_of(item),
        spec.get("schedule", ""),
        spec.get("timeZone") or NONE,
        _boolean(spec.get("suspend")),
        len(status.get("active") or ()),
        age_of(last, now) if last else NONE,
        created(item, now),
        names,
        images,
        format_selector(job.get("selector")),
    ]


_AVERAGED: Final = ("Pods", "Resource", "ContainerResource")
"""Types of metrics of which an amount is always an average, so that no cell says that."""


def _amount(value: Manifest, type_: str) -> tuple[str, str]:
    """Return what a metric's target or current value says, and how it is meant."""
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
        seen = (current[index].get(field) or {}) if index < len(current) else {}
        target = source.get("target") or {}
        wanted, suffix = _amount(target, type_)
        measured = seen.get("current") or {}
        alike = [one for one in ("averageValue", "averageUtilization", "value") if one in target]
        is_known = any(measured.get(one) is not None for one in alike)
        now_at = _amount({one: measured.get(one) for one in alike}, type_)[0]
        named = f"{source['name']}: " if type_ in ("Resource", "ContainerResource") else ""
        found.append(f"{named}{now_at if is_known else UNKNOWN}/{wanted}{suffix}")
    return _some(found, most=_MOST_METRICS, between=", ") or NONE


def _autoscaler(item: Manifest, now: datetime) -> Cells:
    spec, status = item.get("spec") or {}, item.get("status") or {}
    target, least = spec.get("scaleTargetRef") or {}, spec.get("minReplicas")
    return [
        name_of(item),
        f"{target.get('kind', '')}/{target.get('name', '')}",
        _metrics(spec, status),
        UNSET if least is None else str(least),
        spec.get("maxReplicas", 0),
        status.get("currentReplicas", 0),
        created(item, now),
    ]


# The network ----------------------------------------------------------------------------------


def _endpoints(item: Manifest, now: datetime) -> Cells:
    """Rule: ``formatEndpoints``."""
    subsets = item.get("subsets") or ()
    pairs = [
        joined(address.get("ip", ""), port.get("port", 0)) if port else address.get("ip", "")
        for subset in subsets
        for port in subset.get("ports") or (None,)
        for address in subset.get("addresses") or ()
    ]
    return [name_of(item), _some(pairs) if subsets else NONE, created(item, now)]


def _endpoint_slice(item: Manifest, now: datetime) -> Cells:
    """Rules: ``formatDiscoveryPorts``, ``formatDiscoveryEndpoints``."""
    ports = [str(port.get("port") or port.get("name", "*")) for port in item.get("ports") or ()]
    addresses = [
        address for one in item.get("endpoints") or () for address in one.get("addresses") or ()
    ]
    return [
        name_of(item), item.get("addressType", ""), _some(ports) or UNSET,
        _some(addresses) or UNSET, created(item, now),
    ]  # fmt: skip


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


def _ingress(item: Manifest, now: datetime) -> Cells:
    spec = item.get("spec") or {}
    return [
        name_of(item),
        spec.get("ingressClassName") or NONE,
        _hosts(spec.get("rules") or ()),
        ",".join(balancers_of(item.get("status") or {})),
        "80, 443" if spec.get("tls") else "80",
        created(item, now),
    ]


def _ingress_class(item: Manifest, now: datetime) -> Cells:
    spec = item.get("spec") or {}
    named = spec.get("parameters")
    parameters = NONE
    if named:
        group = f".{named['apiGroup']}" if named.get("apiGroup") else ""
        parameters = f"{named.get('kind', '')}{group}/{named.get('name', '')}"
    return [name_of(item), spec.get("controller", ""), parameters, created(item, now)]


def _service_cidr(item: Manifest, now: datetime) -> Cells:
    blocks = (item.get("spec") or {}).get("cidrs") or ()
    return [name_of(item), ",".join(blocks), created(item, now)]


def _ip_address(item: Manifest, now: datetime) -> Cells:
    parent = (item.get("spec") or {}).get("parentRef") or {}
    resource = ".".join(filter(None, (parent.get("resource"), parent.get("group")))).lower()
    parts = (resource, parent.get("namespace"), parent.get("name"))
    return [name_of(item), "/".join(filter(None, parts)) or NONE, created(item, now)]


def _flow_schema(item: Manifest, now: datetime) -> Cells:
    spec = item.get("spec") or {}
    dangling = (item.get("status") or {}).get("conditions") or ()
    missing = next((one.get("status") for one in dangling if one.get("type") == "Dangling"), "?")
    method = (spec.get("distinguisherMethod") or {}).get("type") or "<none>"
    level = (spec.get("priorityLevelConfiguration") or {}).get("name", "")
    place = spec.get("matchingPrecedence", 0)
    return [name_of(item), level, place, method, created(item, now), missing]


def _flow_place(item: Manifest) -> tuple[int, str]:
    """Return what FlowSchemas are sorted by: which of them is asked first."""
    return (item.get("spec") or {}).get("matchingPrecedence", 0), name_of(item)


def _priority_level(item: Manifest, now: datetime) -> Cells:
    spec = item.get("spec") or {}
    limited = spec.get("limited") or {}
    queuing = (limited.get("limitResponse") or {}).get("queuing") or {}
    return [
        name_of(item),
        spec.get("type", ""),
        limited.get("nominalConcurrencyShares", NONE),
        *(queuing.get(one, NONE) for one in ("queues", "handSize", "queueLengthLimit")),
        created(item, now),
    ]


def _network_policy(item: Manifest, now: datetime) -> Cells:
    selector = (item.get("spec") or {}).get("podSelector")
    return [name_of(item), format_selector(selector), created(item, now)]


# Volumes --------------------------------------------------------------------------------------


def _modes(modes: Iterable[str]) -> str:
    given = set(modes)
    return ",".join(short for mode, short in _MODES.items() if mode in given)


def _class_of(item: Manifest) -> str:
    """Return the StorageClass of a volume or a claim; an annotation of former times comes first.

    Rule: ``GetPersistentVolumeClass``, pkg/apis/core/helper/helpers.go.
    """
    former = (item["metadata"].get("annotations") or {}).get(_FORMER_CLASS)
    if former is not None:
        return str(former)
    return (item.get("spec") or {}).get("storageClassName") or ""


def _volume(item: Manifest, now: datetime) -> Cells:
    spec, status = item.get("spec") or {}, item.get("status") or {}
    claim = spec.get("claimRef") or {}
    leaving = item["metadata"].get("deletionTimestamp")
    return [
        name_of(item),
        (spec.get("capacity") or {}).get("storage", "0"),
        _modes(spec.get("accessModes") or ()),
        spec.get("persistentVolumeReclaimPolicy", ""),
        "Terminating" if leaving else status.get("phase", ""),
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "",
        _class_of(item),
        spec.get("volumeAttributesClassName") or UNSET,
        status.get("reason", ""),
        created(item, now),
        spec.get("volumeMode") or UNSET,
    ]


def _claim(item: Manifest, now: datetime) -> Cells:
    spec, status = item.get("spec") or {}, item.get("status") or {}
    bound = bool(spec.get("volumeName"))
    leaving = item["metadata"].get("deletionTimestamp")
    return [
        name_of(item),
        "Terminating" if leaving else status.get("phase", ""),
        spec.get("volumeName", ""),
        (status.get("capacity") or {}).get("storage", "0") if bound else "",
        _modes(status.get("accessModes") or ()) if bound else "",
        _class_of(item),
        spec.get("volumeAttributesClassName") or UNSET,
        created(item, now),
        spec.get("volumeMode") or UNSET,
    ]


def _storage_class(item: Manifest, now: datetime) -> Cells:
    mark = " (default)" if is_default("StorageClass", item) else ""
    return [
        name_of(item) + mark,
        item.get("provisioner", ""),
        item.get("reclaimPolicy", "Delete"),
        item.get("volumeBindingMode") or "Immediate",
        bool(item.get("allowVolumeExpansion")),
        created(item, now),
    ]


def _volume_attributes_class(item: Manifest, now: datetime) -> Cells:
    mark = " (default)" if is_default("VolumeAttributesClass", item) else ""
    return [name_of(item) + mark, item.get("driverName", ""), created(item, now)]


def _csi_driver(item: Manifest, now: datetime) -> Cells:
    spec = item.get("spec") or {}
    audiences = [one.get("audience", "") for one in spec.get("tokenRequests") or ()]
    return [
        name_of(item),
        bool(spec.get("attachRequired", True)),
        bool(spec.get("podInfoOnMount")),
        bool(spec.get("storageCapacity")),
        ",".join(audiences) or UNSET,
        bool(spec.get("requiresRepublish")),
        ",".join(spec.get("volumeLifecycleModes") or ()) or NONE,
        created(item, now),
    ]


def _csi_node(item: Manifest, now: datetime) -> Cells:
    drivers = (item.get("spec") or {}).get("drivers") or ()
    return [name_of(item), len(drivers), created(item, now)]


def _csi_storage_capacity(item: Manifest, now: datetime) -> Cells:
    return [name_of(item), item.get("storageClassName", ""), item.get("capacity", UNSET)]


def _volume_attachment(item: Manifest, now: datetime) -> Cells:
    spec = item.get("spec") or {}
    return [
        name_of(item),
        spec.get("attacher", ""),
        (spec.get("source") or {}).get("persistentVolumeName", ""),
        spec.get("nodeName", ""),
        bool((item.get("status") or {}).get("attached")),
        created(item, now),
    ]


# Devices and certificates ---------------------------------------------------------------------


def _named(item: Manifest, now: datetime) -> Cells:
    return [name_of(item), created(item, now)]


def _resource_claim(item: Manifest, now: datetime) -> Cells:
    status = item.get("status") or {}
    states = ["deleted"] if item["metadata"].get("deletionTimestamp") else []
    if status.get("allocation") is None:
        states += [] if states else ["pending"]
    else:
        states.append("allocated")
        states += ["reserved"] if status.get("reservedFor") else []
    return [name_of(item), ",".join(states), created(item, now)]


def _resource_slice(item: Manifest, now: datetime) -> Cells:
    spec = item.get("spec") or {}
    pool = (spec.get("pool") or {}).get("name", "")
    node = spec.get("nodeName") or UNSET
    return [name_of(item), node, spec.get("driver", ""), pool, created(item, now)]


def _certificate_request(item: Manifest, now: datetime) -> Cells:
    spec, status = item.get("spec") or {}, item.get("status") or {}
    known = {one.get("type") for one in status.get("conditions") or ()}
    states = [name for name in ("Approved", "Denied") if name in known][-1:] or ["Pending"]
    states += ["Failed"] if "Failed" in known else []
    states += ["Issued"] if status.get("certificate") else []
    life = spec.get("expirationSeconds")
    return [
        name_of(item),
        created(item, now),
        spec.get("signerName", ""),
        spec.get("username", ""),
        NONE if life is None else human_duration(life),
        ",".join(states),
    ]


PRINTERS: dict[str, Printer] = {
    "ConfigMap": Printer([NAME, *columns_of("Data"), AGE], _config_map),
    "Secret": Printer([NAME, *columns_of("Type", "Data"), AGE], _secret),
    "ServiceAccount": Printer([NAME, *columns_of("Secrets"), AGE], _service_account),
    "ResourceQuota": Printer([NAME, *columns_of("Request", "Limit"), AGE], _resource_quota),
    "PodTemplate": Printer(
        [NAME, *columns_of("Containers", "Images", "Pod Labels")], _pod_template
    ),
    "ControllerRevision": Printer(
        [NAME, *columns_of("Controller", "Revision"), AGE], _controller_revision
    ),
    "Job": Printer(
        [
            NAME, *columns_of("Status", "Completions", "Duration"), AGE, CONTAINERS, IMAGES,
            SELECTOR,
        ],
        _job,
    ),
    "CronJob": Printer(
        [
            NAME,
            *columns_of("Schedule", "Timezone", "Suspend:boolean", "Active:integer"),
            *columns_of("Last Schedule"),
            AGE, CONTAINERS, IMAGES, SELECTOR,
        ],
        _cron_job,
    ),
    "HorizontalPodAutoscaler": Printer(
        [
            NAME,
            *columns_of("Reference", "Targets", "MinPods", "MaxPods", "Replicas"),
            AGE,
        ],
        _autoscaler,
    ),
    "Endpoints": Printer([NAME, *columns_of("Endpoints"), AGE], _endpoints),
    "EndpointSlice": Printer(
        [NAME, *columns_of("AddressType", "Ports", "Endpoints"), AGE], _endpoint_slice
    ),
    "Ingress": Printer([NAME, *columns_of("Class", "Hosts", "Address", "Ports"), AGE], _ingress),
    "IngressClass": Printer([NAME, *columns_of("Controller", "Parameters"), AGE], _ingress_class),
    "ServiceCIDR": Printer([NAME, *columns_of("CIDRs"), AGE], _service_cidr),
    "IPAddress": Printer([NAME, *columns_of("ParentRef"), AGE], _ip_address),
    "FlowSchema": Printer(
        [
            NAME,
            *columns_of("PriorityLevel", "MatchingPrecedence", "DistinguisherMethod"),
            AGE,
            *columns_of("MissingPL"),
        ],
        _flow_schema,
        place=_flow_place,
    ),
    "PriorityLevelConfiguration": Printer(
        [
            NAME,
            *columns_of("Type", "NominalConcurrencyShares"),
            *columns_of("Queues", "HandSize", "QueueLengthLimit"),
            AGE,
        ],
        _priority_level,
    ),
    "NetworkPolicy": Printer([NAME, *columns_of("Pod-Selector"), AGE], _network_policy),
    "PersistentVolume": Printer(
        [
            NAME,
            *columns_of(
                "Capacity", "Access Modes", "Reclaim Policy", "Status", "Claim", "StorageClass",
                "VolumeAttributesClass", "Reason",
            ),
            AGE,
            *columns_of("VolumeMode::1"),
        ],
        _volume,
    ),
    "PersistentVolumeClaim": Printer(
        [
            NAME,
            *columns_of(
                "Status", "Volume", "Capacity", "Access Modes", "StorageClass",
                "VolumeAttributesClass",
            ),
            AGE,
            *columns_of("VolumeMode::1"),
        ],
        _claim,
    ),
    "StorageClass": Printer(
        [
            NAME,
            *columns_of(
                "Provisioner", "ReclaimPolicy", "VolumeBindingMode",
                "AllowVolumeExpansion",
            ),
            AGE,
        ],
        _storage_class,
    ),
    "CSIDriver": Printer(
        [
            NAME,
            *columns_of(
                "AttachRequired:boolean", "PodInfoOnMount:boolean", "StorageCapacity:boolean",
                "TokenRequests", "RequiresRepublish:boolean", "Modes",
            ),
            AGE,
        ],
        _csi_driver,
    ),
    "CSINode": Printer([NAME, *columns_of("Drivers:integer"), AGE], _csi_node),
    "CSIStorageCapacity": Printer(
        [NAME, *columns_of("StorageClassName", "Capacity")], _csi_storage_capacity
    ),
    "VolumeAttachment": Printer(
        [
            NAME, Column("Attacher", format="name"),
            *columns_of("PV", "Node", "Attached:boolean"), AGE,
        ],
        _volume_attachment,
    ),
    "VolumeAttributesClass": Printer(
        [NAME, *columns_of("DriverName"), AGE], _volume_attributes_class
    ),
    "DeviceClass": Printer([NAME, AGE], _named),
    "ResourceClaim": Printer([NAME, *columns_of("State"), AGE], _resource_claim),
    "ResourceClaimTemplate": Printer([NAME, AGE], _named),
    "ResourceSlice": Printer([NAME, *columns_of("Node", "Driver", "Pool"), AGE], _resource_slice),
    "CertificateSigningRequest": Printer(
        [
            NAME, AGE,
            *columns_of("SignerName", "Requestor", "RequestedDuration", "Condition"),
        ],
        _certificate_request,
    ),
}  # fmt: skip
