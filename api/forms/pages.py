"""Pages: an API path opened in a browser by a signed-in person.

The same view, permissions and contents as for any client; only the renderer differs. A page reads,
and changes nothing: it has no form and no script. It loads nothing from other servers, and its
policy allows one style sheet of this service and nothing else.
"""

from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec
import yaml
from django.template.loader import render_to_string

from api.forms import replies
from api.forms.cells import NONE
from api.forms.replies import Content, MadeManifests, StoredAnswer
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.values.meta import Manifest

POLICY: Final = (
    "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
_VIEWS: Final = ("yaml", "json")
_OF_REVISIONS: Final = ("resourceVersion", "resourceVersionMatch")


class Link(msgspec.Struct, frozen=True):
    """A link; without an address it is plain text."""

    text: str
    address: str = ""
    about: str = ""


class TableRow(msgspec.Struct, frozen=True):
    """A row of a table."""

    cells: list[Link]


def write(data: Any, request: Any, status: int) -> bytes:
    """Return the page for a view's result; ``status`` is the code of the answer."""
    path: str = request.path_info
    query = request.query_params
    context = {
        "path": path,
        "crumbs": list(_crumbs(path)),
        "status": status,
        "view": _chosen(query),
        "views": [Link(name, f"?{urlencode({**query.dict(), 'view': name})}") for name in _VIEWS],
        "user": getattr(getattr(request, "_user", None), "name", ""),
    }
    if isinstance(data, Content):
        context |= _of_content(data, query)
    else:
        context |= _of_value(path, replies.value_of(data), query)
    return render_to_string("api/page.html", context).encode()


def as_yaml(value: Any) -> str:
    """Return a value as YAML, in the order of its keys."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    return text


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]  # either
    """Writes an object that occurs twice in full both times, without YAML aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        """Return True: repeated objects are written out again."""
        return True


def _chosen(query: Any) -> str:
    """Return the format (``view``) in which the page also shows the whole answer; empty: none."""
    found = str(query.get("view", ""))
    return found if found in _VIEWS else ""


def _crumbs(path: str) -> Iterator[Link]:
    """Yield a link for each path above this one that is served."""
    parts = [part for part in path.split("/") if part]
    yield Link("Stowage", "/")
    for number, part in enumerate(parts, start=1):
        address = "/" + "/".join(quote(one) for one in parts[:number])
        # Discovery and collections have pages; "namespaces" inside a path of another group has
        # none, nor has a name before "namespaces".
        yield Link(part, "" if number == len(parts) or not _has_page(parts[:number]) else address)


def _has_page(parts: list[str]) -> bool:
    if parts[0] == "apis" and len(parts) > 3 and parts[3] == "namespaces":
        return len(parts) > 5
    return True


# ---------------------------------------------------------------------------------------- contents


def _of_content(data: Content, query: Any) -> dict[str, Any]:
    if isinstance(data, StoredAnswer) or (isinstance(data, MadeManifests) and data.alone):
        return _of_object(data.kind, data.manifests()[0], query)
    table = data.table("Metadata")
    columns = [one.name for one in table["columnDefinitions"]]
    rows = []
    for row in table["rows"]:
        metadata = row["object"]["metadata"]
        namespace = metadata.get("namespace", "")
        address = path_of(data.kind, namespace, metadata.get("name", ""))
        cells = [Link(_cell(value)) for value in row["cells"]]
        cells[0] = Link(cells[0].text, address)
        if data.kind.namespaced:
            cells.insert(0, Link(namespace, path_of(data.kind, namespace)))
        rows.append(TableRow(cells))
    following = ""
    token = table["metadata"].get("continue")
    if token:
        # The token has the revision of the list.
        parameters = {key: value for key, value in query.dict().items() if key not in _OF_REVISIONS}
        following = "?" + urlencode({**parameters, "continue": token})
    value = replies.value_of(data) if _chosen(query) else None
    return {
        "title": data.kind.list_kind.removesuffix("List") + "s",
        "columns": ["Namespace", *columns] if data.kind.namespaced else columns,
        "rows": rows,
        "following": following,
        "remaining": table["metadata"].get("remainingItemCount"),
        "text": _text(value, query),
    }


def _cell(value: Any) -> str:
    return NONE if value is None else str(value)


def _text(value: Any, query: Any) -> str:
    """Return the whole answer as JSON or YAML if the query asks for it, else empty."""
    chosen = _chosen(query)
    if not chosen:
        return ""
    if chosen == "json":
        return msgspec.json.format(replies.encode(value), indent=2).decode()
    return as_yaml(value)


def _of_object(kind: Kind, item: Manifest, query: Any) -> dict[str, Any]:
    metadata = item.get("metadata") or {}
    shown = dict(item)
    shown["metadata"] = {k: v for k, v in metadata.items() if k != "managedFields"}
    return {
        "title": f"{kind.name} {metadata.get('name', '')}",
        "related": list(related(kind, item)),
        "text": _text(item, query) or as_yaml(shown),
    }


def _of_value(path: str, value: Any, query: Any) -> dict[str, Any]:
    """Return the page's context for an answer that lists no objects: a document, or a failure."""
    chosen = _text(value, query)
    found: dict[str, Any] = {"title": path, "text": chosen or as_yaml(value)}
    if not isinstance(value, dict):
        return found
    kind = value.get("kind")
    root = path.rstrip("/")
    if kind == "Status":
        return {"title": str(value.get("reason") or value["status"]), "failure": value, "text": ""}
    if kind == "APIResourceList":
        names = [one for one in value["resources"] if "/" not in one["name"]]
        found["links"] = [
            Link(
                one["name"], f"{root}/{one['name']}" if "list" in one["verbs"] else "", one["kind"]
            )
            for one in names
        ]
    elif kind == "APIGroupList":
        found["links"] = [
            Link(one["name"], f"{root}/{one['preferredVersion']['groupVersion']}")
            for one in value["groups"]
        ]
    elif kind == "APIGroup":
        found["links"] = [
            Link(one["groupVersion"], f"/apis/{one['groupVersion']}") for one in value["versions"]
        ]
    elif kind == "APIVersions":
        found["links"] = [Link(one, f"{root}/{one}") for one in value["versions"]]
    elif "paths" in value:
        found["links"] = [Link(one, one) for one in value["paths"]]
    if found.get("links"):
        found["text"] = chosen
    return found


# ----------------------------------------------------------------------------------------- related


def path_of(kind: Kind, namespace: str, name: str = "") -> str:
    """Return the path of an object, or of its collection."""
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    place = f"/namespaces/{quote(namespace)}" if namespace and kind.namespaced else ""
    return f"{root}{place}/{kind.plural}" + (f"/{quote(name)}" if name else "")


def _to(kind: str, name: Any, namespace: str = "", about: str = "") -> Iterator[Link]:
    """Yield a link to an object, if there is a name."""
    found = KINDS.get(kind)
    if found is not None and isinstance(name, str) and name:
        yield Link(f"{kind} {name}", path_of(found, namespace, name), about)


def related(kind: Kind, item: Manifest) -> Iterator[Link]:
    """Yield links to what an item names: namespace, owners, node, classes, volumes, events."""
    metadata = item.get("metadata") or {}
    namespace, name = metadata.get("namespace", ""), metadata.get("name", "")
    spec = item.get("spec") if isinstance(item.get("spec"), dict) else {}
    assert isinstance(spec, dict)
    yield from _to("Namespace", namespace, about="namespace")
    for owner in metadata.get("ownerReferences") or ():
        yield from _to(owner.get("kind", ""), owner.get("name"), namespace, "owner")
    if kind.name == "Pod" or kind.group == "stowage.dev":
        yield from _to("Node", spec.get("nodeName"), about="node")
    for field in ("involvedObject", "regarding", "roleRef", "claimRef", "scaleTargetRef", "target"):
        holder = item.get(field) or spec.get(field)
        if isinstance(holder, dict):
            place = holder.get("namespace") or namespace
            yield from _to(holder.get("kind", ""), holder.get("name"), place, field)
    pod = spec.get("template", {}).get("spec") if kind.name != "Pod" else spec
    if isinstance(pod, dict):
        yield from _of_pod(pod, namespace)
    yield from _to("StorageClass", spec.get("storageClassName"), about="storage class")
    yield from _to("PersistentVolume", spec.get("volumeName"), about="volume")
    for subresource in kind.subresources:
        if subresource in ("status", "scale"):
            yield Link(subresource, f"{path_of(kind, namespace, name)}/{subresource}")
    if kind.name == "Pod":
        yield Link("decisions", f"{path_of(kind, namespace, name)}/decisions", "why here")
    if kind.name == "Node":
        yield Link("its evictions", f"/apis/stowage.dev/v1/nodes/{quote(name)}/evictions")
        chosen = urlencode({"fieldSelector": f"spec.nodeName={name}"})
        yield Link("its pods", f"/api/v1/pods?{chosen}")
    if name and kind.group != "stowage.dev":
        chosen = urlencode(
            {"fieldSelector": f"involvedObject.kind={kind.name},involvedObject.name={name}"}
        )
        yield Link("its events", f"{path_of(KINDS['Event'], namespace)}?{chosen}")


def _of_pod(spec: Manifest, namespace: str) -> Iterator[Link]:
    """Yield links to the objects that a pod's spec names."""
    yield from _to("ServiceAccount", spec.get("serviceAccountName"), namespace, "account")
    yield from _to("PriorityClass", spec.get("priorityClassName"), about="priority")
    yield from _to("RuntimeClass", spec.get("runtimeClassName"), about="runtime")
    for volume in spec.get("volumes") or ():
        claim = volume.get("persistentVolumeClaim") or {}
        yield from _to("PersistentVolumeClaim", claim.get("claimName"), namespace, "volume")
        config, secret = volume.get("configMap") or {}, volume.get("secret") or {}
        yield from _to("ConfigMap", config.get("name"), namespace, "volume")
        yield from _to("Secret", secret.get("secretName"), namespace, "volume")
