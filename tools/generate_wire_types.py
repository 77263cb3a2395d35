"""Write ``wire_types.py`` and ``texts.json``: ``python -m tools.generate_wire_types``.

The first has Kubernetes' types as Structs, the second what each type and each field is for.

The definitions come with the development dependency ``kubernetes-validate`` (Apache-2.0; Kubernetes
OpenAPI, v1.37). The output is committed and a test checks that regenerating gives the same bytes,
so nothing of this runs in production.

Every field is optional in the generated types: whether something required is missing is a question
of validation (422, with all causes), not of decoding.
"""

import json
import keyword
import re
import textwrap
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

Schema = dict[str, Any]

VERSION: Final = "v1.37.0"
OLDER: Final = {"io.k8s.api.scheduling.v1alpha2.": "v1.36.0"}
"""Packages that are served and that the version above no longer has: their last version."""
TARGET: Final = Path(__file__).parents[1] / "clusterstate/objects/registry/wire_types.py"
TEXTS: Final = Path(__file__).parents[1] / "api/description/texts.json"
ROOTS: Final = (
    "io.k8s.api.core.v1.Pod",
    "io.k8s.api.core.v1.Node",
    "io.k8s.api.core.v1.Namespace",
    "io.k8s.api.core.v1.Binding",
    "io.k8s.api.core.v1.Event",
    "io.k8s.api.core.v1.Service",
    "io.k8s.api.core.v1.ReplicationController",
    "io.k8s.api.core.v1.ResourceQuota",
    "io.k8s.api.core.v1.LimitRange",
    "io.k8s.api.core.v1.ConfigMap",
    "io.k8s.api.core.v1.Secret",
    "io.k8s.api.core.v1.ServiceAccount",
    "io.k8s.api.core.v1.PodTemplate",
    "io.k8s.api.core.v1.PersistentVolume",
    "io.k8s.api.core.v1.PersistentVolumeClaim",
    "io.k8s.api.node.v1.RuntimeClass",
    "io.k8s.api.scheduling.v1.PriorityClass",
    "io.k8s.api.scheduling.v1beta1.PodGroup",
    "io.k8s.api.scheduling.v1beta1.Workload",
    "io.k8s.api.scheduling.v1alpha3.PodGroup",
    "io.k8s.api.scheduling.v1alpha3.Workload",
    "io.k8s.api.scheduling.v1alpha2.PodGroup",
    "io.k8s.api.scheduling.v1alpha2.Workload",
    "io.k8s.api.policy.v1.PodDisruptionBudget",
    "io.k8s.api.policy.v1.Eviction",
    "io.k8s.api.coordination.v1.Lease",
    "io.k8s.api.apps.v1.ReplicaSet",
    "io.k8s.api.apps.v1.StatefulSet",
    "io.k8s.api.apps.v1.DaemonSet",
    "io.k8s.api.apps.v1.Deployment",
    "io.k8s.api.apps.v1.ControllerRevision",
    "io.k8s.api.batch.v1.Job",
    "io.k8s.api.batch.v1.CronJob",
    "io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler",
    "io.k8s.api.autoscaling.v1.HorizontalPodAutoscaler",
    "io.k8s.api.certificates.v1.CertificateSigningRequest",
    "io.k8s.api.discovery.v1.EndpointSlice",
    "io.k8s.api.core.v1.Endpoints",
    "io.k8s.api.events.v1.Event",
    "io.k8s.api.networking.v1.IPAddress",
    "io.k8s.api.networking.v1.Ingress",
    "io.k8s.api.networking.v1.IngressClass",
    "io.k8s.api.networking.v1.NetworkPolicy",
    "io.k8s.api.networking.v1.ServiceCIDR",
    "io.k8s.api.resource.v1.DeviceClass",
    "io.k8s.api.resource.v1.DeviceTaintRule",
    "io.k8s.api.resource.v1.ResourceClaim",
    "io.k8s.api.resource.v1.ResourceClaimTemplate",
    "io.k8s.api.resource.v1.ResourceSlice",
    "io.k8s.api.storage.v1.CSIDriver",
    "io.k8s.api.storage.v1.CSINode",
    "io.k8s.api.storage.v1.CSIStorageCapacity",
    "io.k8s.api.storage.v1.StorageClass",
    "io.k8s.api.storage.v1.VolumeAttachment",
    "io.k8s.api.storage.v1.VolumeAttributesClass",
    "io.k8s.api.autoscaling.v1.Scale",
    "io.k8s.api.authentication.v1.SelfSubjectReview",
    "io.k8s.api.authentication.v1.TokenRequest",
    "io.k8s.api.authentication.v1.TokenReview",
    "io.k8s.api.authorization.v1.LocalSubjectAccessReview",
    "io.k8s.api.authorization.v1.SelfSubjectAccessReview",
    "io.k8s.api.authorization.v1.SelfSubjectRulesReview",
    "io.k8s.api.authorization.v1.SubjectAccessReview",
    "io.k8s.api.rbac.v1.ClusterRole",
    "io.k8s.api.rbac.v1.ClusterRoleBinding",
    "io.k8s.api.rbac.v1.Role",
    "io.k8s.api.rbac.v1.RoleBinding",
    "io.k8s.api.flowcontrol.v1.FlowSchema",
    "io.k8s.api.flowcontrol.v1.PriorityLevelConfiguration",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Status",
    "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions",
)
ADDITIONS: Final[dict[str, Schema]] = {
    # Announced in the node affinity design and never shipped upstream (R1-R3, ruling C5).
    "NodeAffinity": {
        "requiredDuringSchedulingRequiredDuringExecution": {
            "$ref": "#/$defs/io.k8s.api.core.v1.NodeSelector",
            "description": "Stowage's own: if the requirements are not met, the pod is not"
            " scheduled onto the node, and if they cease to be met later, it is evicted.",
        }
    },
    # The design puts the requirements beside the weight; accepted as an alias (R19, ruling C2).
    "PreferredSchedulingTerm": {
        field: {
            "type": "array",
            "items": {"$ref": "#/$defs/io.k8s.api.core.v1.NodeSelectorRequirement"},
            "description": f"Stowage's own: stands for {field} of preference.",
        }
        for field in ("matchExpressions", "matchFields")
    },
}
SPECIAL: Final = {
    "Quantity": "Quantity",
    "IntOrString": "IntOrString",
    "Time": "Time",
    "MicroTime": "MicroTime",
    "FieldsV1": "dict[str, Any]",
    "RawExtension": "dict[str, Any]",
}
BUILTINS: Final = {"bool", "dict", "float", "int", "list", "str"}
"""Types that annotations name, so that no field may hide them."""
HEADER: Final = '''"""Kubernetes' own types as Structs, and how strategic merge patches merge lists.

Generated by tools/generate_wire_types.py from the Kubernetes OpenAPI definitions {version};
do not edit. The definitions are Copyright The Kubernetes Authors, Apache License 2.0.

They answer two questions: does a known field have the right JSON type, and which fields are known.
Objects are stored as manifests and never pass through these types.
"""

from typing import Annotated, Any

from msgspec import Meta, Struct, field

from clusterstate.objects.values.moments import TIME

Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
MICRO_TIME = f"{{TIME}}(?#micro)"
# What Go's base64.StdEncoding decodes: groups of four, the last one padded, line breaks anywhere;
# many groups at a time where there are none.
BASE64 = (
    r"\\A(?:[A-Za-z0-9+/]{{512}})*+[\\r\\n]*+(?:[A-Za-z0-9+/][\\r\\n]*+[A-Za-z0-9+/][\\r\\n]*+"
    r"(?:[A-Za-z0-9+/][\\r\\n]*+[A-Za-z0-9+/]|[A-Za-z0-9+/][\\r\\n]*+=[\\r\\n]*+\\Z"
    r"|=[\\r\\n]*+=[\\r\\n]*+\\Z)[\\r\\n]*+)*+\\Z"
)
Time = Annotated[str, Meta(pattern=TIME)]
MicroTime = Annotated[str, Meta(pattern=MICRO_TIME)]
Base64 = Annotated[str, Meta(pattern=BASE64)]
Quantity = str | int | float
IntOrString = int | str
'''


def definitions() -> dict[str, Schema]:
    """Return the definitions by full name, with our additions."""
    spec = find_spec("kubernetes_validate")
    assert spec is not None, "kubernetes-validate is a development dependency"
    assert spec.submodule_search_locations is not None
    folder = Path(spec.submodule_search_locations[0])

    def of(version: str) -> dict[str, Schema]:
        path = folder / f"kubernetes-json-schema/{version}-local/_definitions.json"
        read = json.loads(path.read_text())
        return read["$defs"] if "$defs" in read else read["definitions"]

    found = of(VERSION)
    for package, version in OLDER.items():
        found |= {name: one for name, one in of(version).items() if name.startswith(package)}
    for version in ("v1beta1", "v1alpha3"):
        # A template may have templates. They are refused at the first level already, and everything
        # that goes through types would have to be prepared for a circle.
        template = found[f"io.k8s.api.scheduling.{version}.CompositePodGroupTemplate"]
        template["properties"].pop("compositePodGroupTemplates")
    for name, properties in ADDITIONS.items():
        found[f"io.k8s.api.core.v1.{name}"]["properties"].update(properties)
    return found


def _referenced(schema: Schema) -> list[str]:
    """Return the definitions that a property names, itself, as items or as map values."""
    inner = [schema, schema.get("items", {}), schema.get("additionalProperties", {})]
    return [s["$ref"].split("/")[-1] for s in inner if isinstance(s, dict) and "$ref" in s]


def _reachable(known: dict[str, Schema]) -> list[str]:
    """Return the definitions that the roots need, each after those it uses."""
    order: list[str] = []
    seen: set[str] = set()

    def walk(name: str) -> None:
        if name in seen or name.rsplit(".", 1)[-1] in SPECIAL:
            return
        seen.add(name)
        for schema in known[name].get("properties", {}).values():
            for reference in _referenced(schema):
                walk(reference)
        order.append(name)

    for root in ROOTS:
        walk(root)
    return order


def _python_names(order: list[str]) -> dict[str, str]:
    """Return the name of each definition's class: its own, without the package.

    Where two packages have one of the same name, a root keeps it, the first root before others; the
    class of the other is called after its package as well (``CoreV1ResourceClaim``).
    """
    names: dict[str, str] = {}
    taken: set[str] = set()
    for full_name in (*ROOTS, *order):
        if full_name in names:
            continue
        *_, group, version, name = full_name.split(".")
        if name in taken:
            name = f"{group.title()}{version.title()}{name}"
        taken.add(name)
        names[full_name] = name
    return names


def _type(schema: Schema, names: dict[str, str]) -> str:
    if "$ref" in schema:
        full_name: str = schema["$ref"].rsplit("/", 1)[-1]
        return SPECIAL.get(full_name.rsplit(".", 1)[-1], names.get(full_name, ""))
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next(name for name in kind if name != "null")
    if kind == "array":
        return f"list[{_type(schema['items'], names)}]"
    if kind == "object":
        values = schema.get("additionalProperties")
        return (
            f"dict[str, {_type(values, names)}]"
            if isinstance(values, dict) and values
            else "dict[str, Any]"
        )
    if schema.get("format") == "byte":
        return "Base64"
    if kind == "integer":
        return "Int64" if schema.get("format") == "int64" else "Int32"
    return {"string": "str", "boolean": "bool", "number": "float"}.get(kind or "", "Any")


def generate() -> str:
    """Return the text of ``wire_types.py``."""
    known = definitions()
    order = _reachable(known)
    names = _python_names(order)
    lines = [HEADER.format(version=VERSION)]
    patch: dict[str, dict[str, tuple[str, str]]] = {}
    lists: dict[str, dict[str, tuple[str, ...]]] = {}
    wholes: set[str] = set()
    granular: set[str] = set()
    for full_name in order:
        name = names[full_name]
        if known[full_name].get("x-kubernetes-map-type") == "atomic":
            wholes.add(name)
        lines.append(f"\nclass {name}(Struct, omit_defaults=True, gc=False):")
        properties = known[full_name].get("properties", {})
        if not properties:
            lines.append("    pass")
        for wire, schema in sorted(properties.items()):
            python = re.sub(r"\W", "_", wire)
            python += "_" if keyword.iskeyword(python) or python in BUILTINS else ""
            default = f'field(name="{wire}", default=None)' if python != wire else "None"
            lines.append(f"    {python}: {_type(schema, names)} | None = {default}")
            if map_type := schema.get("x-kubernetes-map-type"):
                (wholes if map_type == "atomic" else granular).add(f"{name}.{wire}")
            if schema.get("x-kubernetes-list-type", "atomic") != "atomic":
                keys = tuple(schema.get("x-kubernetes-list-map-keys", ()))
                lists.setdefault(name, {})[wire] = keys
            strategy = schema.get("x-kubernetes-patch-strategy", "")
            if strategy:
                key = schema.get("x-kubernetes-patch-merge-key", "")
                patch.setdefault(name, {})[wire] = (key, strategy)
        lines.append("")
    lines.append("")
    lines.append(
        "# Type -> list or map field -> (merge key, strategy). All other lists are atomic."
    )
    lines.append("PATCH: dict[str, dict[str, tuple[str, str]]] = {")
    for name, fields in sorted(patch.items()):
        lines.append(f'    "{name}": {{')
        lines += [f'        "{f}": ("{k}", "{s}"),' for f, (k, s) in sorted(fields.items())]
        lines.append("    },")
    lines.append("}")
    lines.append("")
    lines.append(
        "# Type -> list -> keys of its items; none where it is a set. For a server-side apply."
    )
    lines.append("LISTS: dict[str, dict[str, tuple[str, ...]]] = {")
    for name, merged in sorted(lists.items()):
        lines.append(f'    "{name}": {{')
        for one, keys in sorted(merged.items()):
            quoted = "".join(f'"{key}", ' for key in keys)
            lines.append(f'        "{one}": ({quoted.strip() if len(keys) < 2 else quoted[:-2]}),')
        lines.append("    },")
    lines.append("}")
    lines.append("")
    lines.append("# What a server-side apply sets as a whole: types, and fields as TYPE.FIELD; and")
    lines.append("# the fields of such types that are merged all the same.")
    for title, found in (("ATOMIC", wholes), ("GRANULAR", granular)):
        lines.append(f"{title}: frozenset[str] = frozenset((")
        lines += [f'    "{one}",' for one in sorted(found)]
        lines.append("))")
    lines.append("")
    lines.append(
        "# The package of each type in OpenAPI, and the types in it; a class that could not"
    )
    lines.append("# have the name of its type is written as class=type.")
    lines.append("PACKAGES: dict[str, str] = {")
    for package in sorted({full_name.rpartition(".")[0] for full_name in order}):
        inside = sorted(full_name for full_name in order if full_name.rpartition(".")[0] == package)
        lines.append(f'    "{package}": (')
        words = []
        for full_name in inside:
            own, name = full_name.rpartition(".")[2], names[full_name]
            words.append(own if own == name else f"{name}={own}")
        lines += [f'        "{text} "' for text in textwrap.wrap(" ".join(words), 85)]
        lines.append("    ),")
    lines.append("}\n")
    return "\n".join(lines)


def texts() -> str:
    """Return the text of ``texts.json``: by type, what it is for (``""``) and each field is for."""
    known = definitions()
    order = _reachable(known)
    names = _python_names(order)
    lines = []
    for full_name in sorted(order, key=lambda one: names[one]):
        schema = known[full_name]
        described = {"": schema, **schema.get("properties", {})}
        found = {
            field: text for field, one in described.items() if (text := one.get("description"))
        }
        lines.append(f"{json.dumps(names[full_name])}: {json.dumps(found, sort_keys=True)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    TARGET.write_text(generate())
    TEXTS.write_text(texts())
