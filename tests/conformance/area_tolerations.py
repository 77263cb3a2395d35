"""Area tolerations: what tolerates what, and the helpers of ``kubectl taint`` (R112-R121)."""

from typing import Any

import msgspec

from clusterstate.objects.rules import matching
from clusterstate.objects.values.node import Taint
from clusterstate.objects.values.pod import Toleration
from tests.reference import taints as taint_edits


def check(case: dict[str, Any]) -> str | None:
    """Return what differs, None if nothing does."""
    judge = _OPERATIONS.get(case["op"])
    if judge is None:
        return f"unknown op {case['op']!r}"
    found = judge(case)
    different = {key: value for key, value in found.items() if value != case.get(key)}
    if not different:
        return None
    return f"{different}, wanted { {key: case.get(key) for key in different} }"


def _taint(value: dict[str, Any]) -> Taint:
    return msgspec.convert(value, Taint)


def _taints(value: list[dict[str, Any]] | None) -> list[Taint]:
    return msgspec.convert(value or [], list[Taint])


def _tolerations(value: list[dict[str, Any]] | None) -> list[Toleration]:
    return msgspec.convert(value or [], list[Toleration])


def _plain(values: list[Any]) -> list[dict[str, Any]]:
    """Return manifests without their empty members, as the vectors write them."""
    return [
        {k: v for k, v in msgspec.to_builtins(i).items() if v not in ("", None)} for i in values
    ]


def _tolerates(case: dict[str, Any]) -> dict[str, Any]:
    toleration = msgspec.convert(case["toleration"], Toleration)
    comparison = case.get("comparisonOperators", False)
    taint = _taint(case["taint"])
    return {"result": matching.tolerates(toleration, taint, comparison_operators=comparison)}


def _find_untolerated(case: dict[str, Any]) -> dict[str, Any]:
    found = matching.find_untolerated(
        _taints(case["taints"]),
        _tolerations(case["tolerations"]),
        comparison_operators=case.get("comparisonOperators", False),
    )
    if found is None:
        return {"untolerated": False}
    same = "taint" not in case or found == _taint(case["taint"])
    return {"untolerated": True} if same else {"untolerated": True, "taint": _plain([found])[0]}


def _is_superset(case: dict[str, Any]) -> dict[str, Any]:
    a, b = _tolerations([case["a"], case["b"]])
    return {"result": matching.is_superset(a, b)}


def _verify_whitelist(case: dict[str, Any]) -> dict[str, Any]:
    found = matching.verify_whitelist(
        _tolerations(case["tolerations"]), _tolerations(case["whitelist"])
    )
    return {"result": found}


def _merge(case: dict[str, Any]) -> dict[str, Any]:
    found = matching.merge_tolerations(_tolerations(case["a"]), _tolerations(case["b"]))
    if found == _tolerations(case["result"]):
        return {}
    return {"result": _plain(list(found))}


def _parse(case: dict[str, Any]) -> dict[str, Any]:
    try:
        add, remove = taint_edits.parse_taints(case["spec"])
    except taint_edits.TaintError as error:
        return {"error": str(error)}
    return {"error": None, "add": _plain(add), "remove": _plain(remove)}


def _validate(case: dict[str, Any]) -> dict[str, Any]:
    try:
        taint_edits.validate_taint(_taint(case["taint"]))
    except taint_edits.TaintError as error:
        return {"error": str(error)}
    return {"error": None}


def _of_node(case: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return (case[name].get("spec") or {}).get("taints") or []


def _edited(case: dict[str, Any], taints: list[Taint], *, updated: bool) -> dict[str, Any]:
    wanted = _taints(_of_node(case, "resultNode"))
    shown = {} if taints == wanted else {"resultNode": {"spec": {"taints": _plain(taints)}}}
    return {"updated": updated, "error": None, **shown}


def _add_or_update(case: dict[str, Any]) -> dict[str, Any]:
    taints, updated = taint_edits.add_or_update_taint(
        _taints(_of_node(case, "node")), _taint(case["taint"])
    )
    return _edited(case, taints, updated=updated)


def _remove(case: dict[str, Any]) -> dict[str, Any]:
    taints, updated = taint_edits.delete_taint(
        _taints(_of_node(case, "node")), _taint(case["taint"])
    )
    return _edited(case, taints, updated=updated)


def _deleted(case: dict[str, Any], taints: list[Taint], *, deleted: bool) -> dict[str, Any]:
    wanted = _taints(case.get("resultTaints"))
    return {"result": deleted, **({} if taints == wanted else {"resultTaints": _plain(taints)})}


def _delete(case: dict[str, Any]) -> dict[str, Any]:
    taints, deleted = taint_edits.delete_taint(_taints(case["taints"]), _taint(case["taint"]))
    return _deleted(case, taints, deleted=deleted)


def _delete_by_key(case: dict[str, Any]) -> dict[str, Any]:
    key = case["key"] if "key" in case else case.get("taintKey", "")
    taints, deleted = taint_edits.delete_taints_by_key(_taints(case["taints"]), key)
    return _deleted(case, taints, deleted=deleted)


def _set_diff(case: dict[str, Any]) -> dict[str, Any]:
    add, remove = taint_edits.taint_set_diff(_taints(case["new"]), _taints(case["old"]))
    same = (add, remove) == (_taints(case["add"]), _taints(case["remove"]))
    return {} if same else {"add": _plain(add), "remove": _plain(remove)}


def _exists(case: dict[str, Any]) -> dict[str, Any]:
    return {"result": matching.taint_exists(_taints(case["taints"]), _taint(case["taint"]))}


def _already_exist(case: dict[str, Any]) -> dict[str, Any]:
    found = taint_edits.taints_already_exist(_taints(case["old"]), _taints(case["taints"]))
    return {"result": found}


_OPERATIONS = {
    "toleratesTaint": _tolerates,
    "findUntolerated": _find_untolerated,
    "isSuperset": _is_superset,
    "verifyWhitelist": _verify_whitelist,
    "merge": _merge,
    "taint:parse": _parse,
    "taint:validate": _validate,
    "taint:addOrUpdate": _add_or_update,
    "taint:remove": _remove,
    "taint:delete": _delete,
    "taint:deleteByKey": _delete_by_key,
    "taint:setDiff": _set_diff,
    "taint:exists": _exists,
    "taint:alreadyExist": _already_exist,
}
