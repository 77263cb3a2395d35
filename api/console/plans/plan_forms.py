"""The changes in a URL or a text, as entries of a plan, and the same in kubectl.

A URL names one change (``do=drain&node=n1``), so that a user can send a preview to a colleague; a
text (YAML) contains nodes, pods, a scheduler configuration or whole plans. Both become entries of a
``Plan``'s ``spec.changes``, which the advisor checks and answers.
"""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Final

import msgspec
from django.http import QueryDict

from api.console.live import node_cache
from api.console.page import language
from api.kinds import own
from clusterstate.objects.rules import node_edits
from clusterstate.objects.rules.matching import EFFECTS
from clusterstate.objects.values.errors import BadRequest
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.numbers import natural
from clusterstate.objects.wire import reading

CORDON, UNCORDON, DRAIN, DELETE = "cordon", "uncordon", "drain", "delete"
TAINT, UNTAINT, LABEL, RESIZE = "taint", "untaint", "label", "resize"
EVICT, DELETE_POD, EDIT, SCALE = "evict", "delete-pod", "edit", "scale"
REBALANCE: Final = "rebalance"
KNOWN: Final = (
    CORDON, UNCORDON, DRAIN, DELETE, TAINT, UNTAINT, RESIZE, EVICT, DELETE_POD, EDIT, SCALE,
    REBALANCE,
)  # fmt: skip
SCALED: Final = ("Deployment", "ReplicaSet", "StatefulSet")
"""The kinds whose replicas a plan may change."""
MOST_NODES: Final = 500
_TO_EMPTY: Final = "ToEmptyNodes"
_MOST_NAMED: Final = 3
_END: Final = "END"
_UNTOLD: Final = "you may not read"
_OF_OBJECTS: Final = ("add", "pods", "import")
_IMPORTED: Final = (
    "Namespace", "PriorityClass", "RuntimeClass", "LimitRange", "PodDisruptionBudget", "Service",
)  # fmt: skip
_TAKEN: Final = {"Node": "add", "Pod": "pods", **dict.fromkeys(_IMPORTED, "import")}
"""The kinds in a text besides plans and a configuration, with the change made of each."""


def document_of(changes: Sequence[Manifest], how: Manifest | None = None) -> Manifest:
    """Return a ``Plan`` of these changes; ``how``: other fields of its ``spec``."""
    spec = {"changes": list(changes), **(how or {})}
    return {"apiVersion": own.API_VERSION, "kind": "Plan", "spec": spec}


def how_of(query: QueryDict) -> Manifest:
    """Return the fields of a plan's ``spec`` in a URL: the horizon, and how to carry it out.

    Fields that the URL does not have are left out.
    """
    found: Manifest = {}
    if (horizon := horizon_of(query)) is not None:
        found["horizonSeconds"] = horizon
    if query.get("hold") == "on" or query.get("do") == REBALANCE:
        found["holdPlaces"] = query.get("hold") == "on"
    if (pods := _number(query, "per_hour", "pods")) is not None:
        found["podsPerHour"] = pods
    if schedule := query.get("schedule", "").strip():
        found["schedule"] = schedule
    return found


def horizon_of(query: QueryDict) -> int | None:
    """Return the horizon in a URL, in seconds, None for the default of plans."""
    return _number(query, "horizon", "seconds")


def changes_of(query: QueryDict) -> list[Manifest]:
    """Return the changes that a URL names. The list is empty if a form was sent unchanged.

    Raises:
        BadRequest: the URL names no kind of change, or an invalid change.
    """
    do = query.get("do", "")
    if do not in KNOWN:
        raise BadRequest(f"do: must be one of {', '.join(KNOWN)}")
    grace = _grace(query)
    if do in (EVICT, DELETE_POD):
        pods = query.getlist("pod")
        if not pods:
            raise BadRequest("pod: name pods as namespace/name")
        more = {"disableEviction": True} if do == DELETE_POD else {}
        return [{EVICT: {"pods": pods, **more, **grace}}]
    if do == SCALE:
        return [{SCALE: _scale(query)}]
    if do == REBALANCE:
        return [{REBALANCE: _rebalance(query)}]
    on = {"nodes": _nodes(query)}
    if do in (TAINT, UNTAINT):
        return [{do: {**on, "taints": [_taint(query, exact=do == TAINT)]}}]
    if do == RESIZE:
        amounts = _amounts(query)
        return [{RESIZE: {**on, "amounts": amounts}}] if amounts else []
    if do == EDIT:
        return list(_edited(on, query))
    if do == DRAIN:
        options = {"force": "force", "local": "deleteEmptyDirData"}
        chosen = {name: True for option, name in options.items() if query.get(option) == "on"}
        return [{DRAIN: {**on, **chosen, **grace}}]
    return [{do: on}]


def _amounts(query: QueryDict) -> Manifest:
    """Return the amounts that differ from those when the form was shown (``had_amount``)."""
    parts = (query.getlist(name) for name in ("resource", "amount", "had_amount"))
    rows = ((one.strip() for one in row) for row in zip_longest(*parts, fillvalue=""))
    return {name: amount for name, amount, had in rows if name and amount != had}


def _scale(query: QueryDict) -> Manifest:
    kind, name, text = (query.get(one, "").strip() for one in ("kind", "name", "replicas"))
    if kind not in SCALED or not name:
        raise BadRequest(f"kind and name: must name one of {', '.join(SCALED)}")
    replicas = natural(text, digits=9)
    if replicas is None:
        raise BadRequest("replicas: must be a number")
    namespace = query.get("namespace", "").strip() or "default"
    return {"kind": kind, "namespace": namespace, "name": name, "replicas": replicas}


def _rebalance(query: QueryDict) -> Manifest:
    for name, field in (("pod", "roomFor"), ("group", "roomForGroup")):
        if whom := query.get(name, "").strip():
            return {field: whom}
    selector, objective = (query.get(one, "").strip() for one in ("selector", "objective"))
    empties = objective in ("", _TO_EMPTY)
    most = _number(query, "most", "nodes" if empties else "pods")
    return {
        **({} if empties else {"objective": objective}),
        **({"selector": selector} if selector else {}),
        **({} if most is None else {"mostNodes" if empties else "mostPods": most}),
    }


def _grace(query: QueryDict) -> Manifest:
    seconds = _number(query, "grace", "seconds")
    return {} if seconds is None else {"gracePeriodSeconds": seconds}


def _number(query: QueryDict, name: str, of: str) -> int | None:
    text = query.get(name, "").strip()
    if not text:
        return None
    number = natural(text, digits=11)
    if number is None:
        raise BadRequest(f"{name}: must be a number of {of}")
    return number


def _nodes(query: QueryDict) -> list[str]:
    names = query.getlist("node")
    if text := query.get("q", ""):
        try:
            names = names + [one.name for one in language.matching(node_cache.nodes().items, text)]
        except language.QueryError as error:
            raise BadRequest(str(error)) from None
    found = list(dict.fromkeys(name for name in names if name))
    if not found:
        raise BadRequest("node: name at least one node")
    if len(found) > MOST_NODES:
        raise BadRequest(f"at most {MOST_NODES} nodes at a time; narrow the query")
    return found


def _taint(query: QueryDict, *, exact: bool) -> Manifest:
    key, effect, value = (query.get(name, "").strip() for name in ("key", "effect", "value"))
    if not key or (effect not in EFFECTS and (exact or effect)):
        raise BadRequest(f"a taint needs a key and an effect: {', '.join(EFFECTS)}")
    return _as_taint(key, value, effect)


def _as_taint(key: str, value: str, effect: str) -> Manifest:
    taint = {"key": key, "value": value, "effect": effect}
    return {name: one for name, one in taint.items() if one}


class Overtaken(msgspec.Struct, frozen=True):
    """A field in a form that others changed since the form was shown; ``None``: absent."""

    what: str
    shown: str | None
    now: str | None
    wanted: str | None


def overtaken(query: QueryDict, stored: Manifest) -> list[Overtaken]:
    """Return the fields that a node's form changes and others changed since it was shown.

    ``stored``: the node as it is.
    """
    do = query.get("do")
    if do == RESIZE:
        parts = (query.getlist(name) for name in ("resource", "had_amount"))
        rows = [[one.strip() for one in row] for row in zip_longest(*parts, fillvalue="")]
        had = {name: amount for name, amount in rows if amount}
        offered = (stored.get("status") or {}).get("allocatable") or {}
        return _overtaken("{}", {**had, **_amounts(query)}, had, offered)
    if do != EDIT:
        return []
    labels = (stored.get("metadata") or {}).get("labels") or {}
    found = _overtaken("label {}", *_labels(query), labels)
    stored_taints = (stored.get("spec") or {}).get("taints") or ()
    taints = {(one["key"], one["effect"]): one.get("value") or "" for one in stored_taints}
    return found + _overtaken("taint {0[0]}:{0[1]}", *_taints(query), taints)


def _overtaken(
    words: str, has: Mapping[Any, str], had: Mapping[Any, str], stored: Mapping[Any, str]
) -> list[Overtaken]:
    edited = [one for one in {**had, **has} if has.get(one) != had.get(one)]
    return [
        Overtaken(words.format(one), had.get(one), stored.get(one), has.get(one))
        for one in edited
        if stored.get(one) not in (had.get(one), has.get(one))
    ]


def _labels(query: QueryDict) -> tuple[dict[str, str], dict[str, str]]:
    """Return the labels in a form, and the labels of the node when the form was shown."""
    has = {key: value for key, value in _rows(query, "label") if key}
    return has, dict(_rows(query, "had_label"))


def _taints(query: QueryDict) -> tuple[dict[tuple[str, str], str], dict[tuple[str, str], str]]:
    """Return the values of the taints in a form, and of those when the form was shown."""
    has = {(key, effect): value for key, value, effect in _triples(query, "taint") if key}
    return has, {(key, effect): value for key, value, effect in _triples(query, "had_taint")}


def _edited(on: Manifest, query: QueryDict) -> Iterator[Manifest]:
    """Yield the changes in a node's form, compared with the rows when it was shown.

    Only the person's own edits: changes that others made meanwhile stay.
    """
    has, had = _labels(query)
    new_labels = {key: value for key, value in has.items() if had.get(key) != value}
    gone = [key for key in had if key not in has]
    if new_labels or gone:
        parts = {"set": new_labels} if new_labels else {}
        yield {LABEL: {**on, **parts, **({"remove": gone} if gone else {})}}
    taints, had_taints = _taints(query)
    away = [_as_taint(one[0], "", one[1]) for one in had_taints if one not in taints]
    if away:
        yield {UNTAINT: {**on, "taints": away}}
    new = {one: value for one, value in taints.items() if had_taints.get(one) != value}
    if new:
        yield {TAINT: {**on, "taints": [_as_taint(k, value, e) for (k, e), value in new.items()]}}
    cordoned = query.get("cordoned")
    if cordoned is not None:
        yield {CORDON if cordoned == "yes" else UNCORDON: on}


def _rows(query: QueryDict, name: str) -> list[tuple[str, str]]:
    keys, values = query.getlist(f"{name}_key"), query.getlist(f"{name}_value")
    return [(key.strip(), value.strip()) for key, value in zip_longest(keys, values, fillvalue="")]


def _triples(query: QueryDict, name: str) -> list[tuple[str, str, str]]:
    effects = query.getlist(f"{name}_effect")
    rows = zip_longest(_rows(query, name), effects, fillvalue="")
    return [(row[0], row[1], effect) for row, effect in rows if row]


# Texts -----------------------------------------------------------------------------------------


def read(text: str) -> list[Manifest]:
    """Return the changes in a YAML text: of all its documents, in their order.

    Nodes are added, pods posted, other objects imported, a configuration is put in force, and a
    plan's changes are copied.

    Raises:
        BadRequest: it is no YAML, or has another document; the message says which.
    """
    found: list[Manifest] = []
    for number, one in enumerate(_objects(text), 1):
        kind = one.get("kind")
        if kind in _TAKEN:
            what = _TAKEN[kind]
            if not found or list(found[-1]) != [what]:
                found.append({what: {"objects": []}})
            found[-1][what]["objects"].append(one)
        elif kind == "KubeSchedulerConfiguration":
            found.append({"configuration": one})
        elif kind == "Plan":
            spec = one.get("spec")
            changes = spec.get("changes") if isinstance(spec, dict) else None
            if not isinstance(changes, list) or not all(isinstance(c, dict) for c in changes):
                raise BadRequest(f"object {number}: a Plan must have changes in spec.changes")
            found += changes
        else:
            expected = f"one of {', '.join(_TAKEN)}, KubeSchedulerConfiguration, Plan"
            raise BadRequest(f"object {number}: its kind is {kind!r}; expected {expected}")
    if not found:
        raise BadRequest("the text has no object")
    return found


def _objects(text: str) -> Iterator[Manifest]:
    raw = text.encode()
    documents = list(reading.read_yaml_documents(raw))
    reading.refuse_repeated_keys(raw)
    for one in documents:
        if one is None:
            continue
        if not isinstance(one, dict):
            raise BadRequest("not an object: it must begin with apiVersion, kind and metadata")
        items = one.get("items")
        if str(one.get("kind") or "").endswith("List") and isinstance(items, list):
            yield from (item for item in items if isinstance(item, dict))
        else:
            yield one


# Words -----------------------------------------------------------------------------------------


def in_words(changes: Iterable[Manifest]) -> str:
    """Return changes as a sentence without a full stop: ``Drain n1; taint n2``."""
    parts = [words for change in changes for words in _words(change)]
    text = "; ".join(parts[:_MOST_NAMED])
    if len(parts) > _MOST_NAMED:
        text += f"; and {len(parts) - _MOST_NAMED} more"
    return text[:1].upper() + text[1:]


def _words(change: Manifest) -> Iterator[str]:
    for what, entry in change.items():
        body = entry if isinstance(entry, dict) else {}
        objects = [one for one in body.get("objects") or () if isinstance(one, dict)]
        if what == "configuration":
            yield "replace the scheduler's configuration"
        elif what == "scale":
            whole = f"{body.get('namespace') or 'default'}/{body['name']}" if "name" in body else ""
            yield f"scale {body.get('kind')} {whole or f'that {_UNTOLD}'} to {body.get('replicas')}"
        elif what in _OF_OBJECTS:
            verb = "post" if what == "pods" else what
            yield f"{verb} {_listed([*map(_name, objects), *_hidden_counts(body)])}"
        elif what == EVICT:
            verb = "delete" if body.get("disableEviction") else "evict"
            yield f"{verb} {_listed([*(body.get('pods') or ()), *_hidden_counts(body)])}"
        elif "roomFor" in body:
            yield f"make room for {body['roomFor']}"
        else:
            names = list(body.get("nodes") or ())
            if what == REBALANCE and not body.get("selector"):
                names.append("all nodes")
            if body.get("selector"):
                names.append(f"nodes with {body['selector']}")
            yield f"{what} {_listed([*names, *_hidden_counts(body)])}"


def _hidden_counts(body: Manifest) -> list[str]:
    """Return how many objects of a change are hidden from the user (``naming_objects``)."""
    keys = ("otherPods", "otherNodes", "otherObjects")
    return [f"{body[key]} that {_UNTOLD}" for key in keys if body.get(key)]


def _name(one: Manifest) -> str:
    metadata = one.get("metadata")
    found = metadata if isinstance(metadata, dict) else {}
    return str(found.get("name") or found.get("generateName") or "an object")


def _listed(names: Sequence[Any]) -> str:
    text = ", ".join(str(one) for one in names[:_MOST_NAMED])
    more = len(names) - _MOST_NAMED
    return f"{text} and {more} more" if more > 0 else text


def plain(changes: Sequence[Manifest]) -> str:
    """Return the label for making changes without a preview; empty: not possible."""
    kinds = {what for change in changes for what in change}
    if kinds == {DRAIN}:
        return "Cordon now, evict later"
    if kinds and kinds <= {CORDON, UNCORDON, TAINT, UNTAINT, LABEL, DELETE}:
        return f"{in_words(changes)}, without a preview"
    return ""


def edited(what: str, entry: Manifest, node: Manifest) -> Manifest:
    """Return a node after a change without a preview (``plain``)."""
    if what in (TAINT, UNTAINT):
        edit = node_edits.taint if what == TAINT else node_edits.untaint
        return edit(node, entry["taints"])
    if what == LABEL:
        return node_edits.label(node, entry.get("set") or {}, entry.get("remove") or ())
    return node_edits.cordon(node, closed=what != UNCORDON)


def kubectl(changes: Iterable[Manifest]) -> str:
    """Return kubectl commands that do the same, or nearly so.

    Anybody may write a URL with a preview, so all values are quoted: a shell sees only words.
    """
    return "\n".join(line for change in changes for line in _commands(change))


def _commands(change: Manifest) -> Iterator[str]:
    for what, entry in change.items():
        if (what == "scale" and "name" not in entry) or _hidden_counts(entry):
            yield f"# and what {_UNTOLD}"
        if what == "scale" and "name" not in entry:
            continue
        if what == "configuration":
            path = "/apis/stowage.dev/v1/schedulerconfiguration"
            yield _fed(["kubectl", "replace", "--raw", path, "-f", "-"], [entry])
        elif what == "scale":
            words = [entry.get("kind"), entry.get("name"), f"--replicas={entry.get('replicas')}"]
            namespace = str(entry.get("namespace") or "default")
            yield shlex.join(["kubectl", "scale", "-n", namespace, *map(str, words)])
        elif what in _OF_OBJECTS:
            yield _fed(["kubectl", "create", "-f", "-"], entry.get("objects") or ())
        elif what == EVICT:
            yield from _of_pods(entry)
        else:
            yield from _of_nodes(what, entry)


def _fed(command: Sequence[str], objects: Iterable[Manifest]) -> str:
    """Return a command with objects on its standard input, a JSON line each (a here-document)."""
    lines = [msgspec.json.encode(one).decode() for one in objects]
    return "\n".join([f"{shlex.join(command)} <<'{_END}'", *lines, _END])


def _of_pods(entry: Manifest) -> Iterator[str]:
    grace = entry.get("gracePeriodSeconds")
    for pod in entry.get("pods") or ():
        namespace, _, name = str(pod).partition("/")
        if entry.get("disableEviction"):
            more = [] if grace is None else [f"--grace-period={grace}"]
            yield shlex.join(["kubectl", "delete", "pod", "-n", namespace, name, *more])
        else:
            eviction: Manifest = {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"namespace": namespace, "name": name},
            }
            if grace is not None:
                eviction["deleteOptions"] = {"gracePeriodSeconds": grace}
            path = f"/api/v1/namespaces/{namespace}/pods/{name}/eviction"
            yield _fed(["kubectl", "create", "--raw", path, "-f", "-"], [eviction])


def _of_nodes(what: str, entry: Manifest) -> Iterator[str]:
    chosen = [str(one) for one in entry.get("nodes") or ()]
    which = [chosen] if chosen else []
    if entry.get("selector"):
        which.append(["-l", str(entry["selector"])])
    for words in which:
        yield from _of_some(what, entry, words)


def _of_some(what: str, entry: Manifest, words: list[str]) -> Iterator[str]:
    if what == DRAIN:
        options = ["--ignore-daemonsets"]
        options += ["--delete-emptydir-data"] if entry.get("deleteEmptyDirData") else []
        options += ["--force"] if entry.get("force") else []
        if entry.get("gracePeriodSeconds") is not None:
            options.append(f"--grace-period={entry['gracePeriodSeconds']}")
        yield shlex.join(["kubectl", "drain", *words, *options])
    elif what == DELETE:
        yield shlex.join(["kubectl", "delete", "nodes", *words])
    elif what in (CORDON, UNCORDON):
        yield shlex.join(["kubectl", what, *words])
    elif what == LABEL:
        parts = [f"{key}={value}" for key, value in (entry.get("set") or {}).items()]
        parts += [f"{key}-" for key in entry.get("remove") or ()]
        yield shlex.join(["kubectl", "label", "--overwrite", "nodes", *words, *parts])
    elif what in (TAINT, UNTAINT):
        sign = "-" if what == UNTAINT else ""
        parts = [_as_kubectl(one, sign) for one in entry.get("taints") or ()]
        yield shlex.join(["kubectl", "taint", "--overwrite", "nodes", *words, *parts])
    elif what == RESIZE:
        amounts = entry.get("amounts") or {}
        patch = {"status": {"capacity": amounts, "allocatable": amounts}}
        command = f"--subresource=status -p {shlex.quote(msgspec.json.encode(patch).decode())}"
        if words[:1] == ["-l"]:
            yield f"kubectl patch $(kubectl get nodes {shlex.join(words)} -o name) {command}"
        else:
            yield from (f"kubectl patch {shlex.quote(f'nodes/{one}')} {command}" for one in words)


def _as_kubectl(taint: Manifest, sign: str) -> str:
    key, value, effect = (taint.get(name, "") for name in ("key", "value", "effect"))
    text = f"{key}={value}" if value and not sign else str(key)
    return (f"{text}:{effect}" if effect else text) + sign
