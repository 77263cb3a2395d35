"""``extenders`` of a KubeSchedulerConfiguration: HTTP services that take part in decisions.

Each becomes a plugin of every profile, called after all other filters and before all other binders;
ignorable ones come last, as in kube-scheduler. Its name is ``Extender`` and its URL, with a number
if the URL occurs before. Fields and their meaning: ``pkg/scheduler/extender.go``, v1.36.
``batchVerb`` is this service's own. Unsupported parts of ``tlsConfig`` are errors.
"""

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

import msgspec

from clusterstate.objects.values import durations
from clusterstate.objects.values.errors import FORBIDDEN, INVALID, REQUIRED, FieldError
from scheduling.framework.configuration import PluginUse, Profile
from scheduling.framework.configuration.plugin_args import NodeResourcesFitArgs
from scheduling.framework.configuration.reading import Field, check_label_name

_DEFAULT_SECONDS: Final = 5.0
_LONGEST_SECONDS: Final = 60.0
_VERBS: Final = ("filterVerb", "prioritizeVerb", "preemptVerb", "bindVerb", "batchVerb")
_TLS_REFUSED: Final = ("serverName", "certData", "keyData", "caData")


class ExtenderArgs(msgspec.Struct, frozen=True, kw_only=True):
    """One extender. ``managed``: resources; the extender is called only for pods that request one.

    Verbs may be empty, not all of them; ``batch_verb`` replaces ``filter_verb`` and
    ``prioritize_verb``. ``seconds``: the limit of a whole call.
    """

    name: str
    url_prefix: str
    filter_verb: str = ""
    prioritize_verb: str = ""
    preempt_verb: str = ""
    bind_verb: str = ""
    batch_verb: str = ""
    weight: int = 1
    seconds: float = _DEFAULT_SECONDS
    node_cache_capable: bool = False
    managed: frozenset[str] = frozenset()
    ignorable: bool = False
    insecure: bool = False
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""


class Extender(msgspec.Struct, frozen=True):
    """An extender's arguments, and the resources that NodeResourcesFit ignores for it."""

    args: ExtenderArgs
    ignored_by_scheduler: frozenset[str]


def read(top: Field, warnings: list[str]) -> list[Extender]:
    """Return the extenders of a configuration; errors are collected.

    Rule: apis/config/validation ``validateExtenders``: at most one may bind, and a resource has at
    most one manager. Two may have the same address.
    """
    managed: set[str] = set()
    found = [_read(field, managed, warnings) for field in top.objects("extenders")]
    binders = sum(bool(one.args.bind_verb) for one in found)
    if binders > 1:
        detail = f"found {binders} extenders implementing bind"
        top.errors.append(FieldError(INVALID, "extenders", None, detail))
    count: dict[str, int] = {}
    for number, one in enumerate(found):
        name = one.args.name
        nth = count[name] = count.get(name, 0) + 1
        if nth > 1:
            args = msgspec.structs.replace(one.args, name=f"{name} ({nth})")
            found[number] = msgspec.structs.replace(one, args=args)
    return found


def _read(field: Field, all_managed: set[str], warnings: list[str]) -> Extender:
    """Read one extender; adds its managed resources to ``all_managed``, which must lack them."""
    errors = field.errors
    url = field.text("urlPrefix")
    scheme = _scheme(url)
    if not url:
        errors.append(FieldError(REQUIRED, field.child("urlPrefix")))
    elif not scheme:
        field.error("urlPrefix", url, 'must be "http://host..." or "https://host...", without user')
    if field.boolean("enableHTTPS", default=scheme == "https") != (scheme == "https"):
        field.error("enableHTTPS", url, "must match the scheme of urlPrefix")
    verbs = {name: field.text(name).strip("/") for name in _VERBS}
    if not any(verbs.values()):
        detail = "an extender needs one of " + ", ".join(_VERBS)
        errors.append(FieldError(REQUIRED, field.child("filterVerb"), None, detail))
    for name in ("filterVerb", "prioritizeVerb"):
        if verbs["batchVerb"] and verbs[name]:
            detail = f"batchVerb replaces {name}: give one of the two"
            errors.append(FieldError(FORBIDDEN, field.child(name), None, detail))
    for name, verb in verbs.items():
        if not verb.isascii() or not verb.isprintable() or any(sign in verb for sign in " ?#"):
            field.error(name, verb, "must be a path, such as filter")
    scores = bool(verbs["prioritizeVerb"] or verbs["batchVerb"])
    weight = field.integer("weight", 1)
    if scores and not 1 <= weight <= 1000:
        field.error("weight", weight, "must be between 1 and 1000")
    seconds = _seconds(field, warnings)
    tls = field.object("tlsConfig") or Field({}, field.child("tlsConfig"), errors)
    for name in _TLS_REFUSED:
        if tls.take(name):
            detail = "is not supported: name files (caFile, certFile, keyFile)"
            errors.append(FieldError(FORBIDDEN, tls.child(name), None, detail))
    managed, ignored = _resources(field, all_managed)
    args = ExtenderArgs(
        name=f"Extender {url}",
        url_prefix=url.rstrip("/"),
        filter_verb=verbs["filterVerb"],
        prioritize_verb=verbs["prioritizeVerb"],
        preempt_verb=verbs["preemptVerb"],
        bind_verb=verbs["bindVerb"],
        batch_verb=verbs["batchVerb"],
        weight=weight,
        seconds=seconds,
        node_cache_capable=field.boolean("nodeCacheCapable", default=False),
        managed=managed,
        ignorable=field.boolean("ignorable", default=False),
        insecure=tls.boolean("insecure", default=False),
        ca_file=tls.text("caFile"),
        cert_file=tls.text("certFile"),
        key_file=tls.text("keyFile"),
    )
    tls.finish()
    field.finish()
    return Extender(args, ignored)


def _scheme(url: str) -> str:
    """Return the scheme of an http or https URL, empty for any other."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # ValueError unless it is a number up to 65535
    except ValueError:
        return ""
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        return ""
    return parts.scheme


def _seconds(field: Field, warnings: list[str]) -> float:
    """Return ``httpTimeout``, such as "100ms" or "1m30s"; 5 s where it is absent or 0."""
    text = field.take("httpTimeout")
    if text is None:
        return _DEFAULT_SECONDS
    seconds = durations.parse(text)
    if seconds is None or seconds < 0:
        shown = text if isinstance(text, str | int | float) else None
        field.error("httpTimeout", shown, 'must be a duration such as "100ms", "5s" or "1m30s"')
        return _DEFAULT_SECONDS
    if seconds > _LONGEST_SECONDS:
        warnings.append(f"{field.child('httpTimeout')}: {text} acts as 60s")
    return min(seconds, _LONGEST_SECONDS) or _DEFAULT_SECONDS


def _resources(field: Field, all_managed: set[str]) -> tuple[frozenset[str], frozenset[str]]:
    managed, ignored = set(), set()
    for one in field.objects("managedResources"):
        name = one.text("name")
        check_label_name(name, one.child("name"), field.errors)
        if "/" not in name:
            one.error("name", name, "must be an extended resource, such as example.com/device")
        if name in all_managed:
            one.error("name", name, "duplicate extender managed resource name")
        all_managed.add(name)
        if one.boolean("ignoredByScheduler", default=False):
            ignored.add(name)
        one.finish()
        managed.add(name)
    return frozenset(managed), frozenset(ignored)


def extended(profile: Profile, extenders: Sequence[Extender]) -> Profile:
    """Return a profile with the extenders at the end of its filters and scores.

    A binding one is the first binder. One that takes part in preemption is also among the filters,
    where ``runtime.Framework`` finds it.
    """
    if not extenders:
        return profile
    points, args = dict(profile.points), dict(profile.args)
    for extender in sorted(extenders, key=lambda one: one.args.ignorable):
        one = extender.args
        args[one.name] = one
        if one.filter_verb or one.batch_verb or one.preempt_verb:
            points["filter"] = (*points.get("filter", ()), PluginUse(one.name))
        if one.prioritize_verb or one.batch_verb:
            points["score"] = (*points.get("score", ()), PluginUse(one.name, one.weight))
        if one.bind_verb:
            points["bind"] = (PluginUse(one.name), *points.get("bind", ()))
    ignored = frozenset().union(*(one.ignored_by_scheduler for one in extenders))
    fit = args.get("NodeResourcesFit")
    if ignored and isinstance(fit, NodeResourcesFitArgs):
        both = tuple(sorted(ignored.union(fit.ignored_resources)))
        args["NodeResourcesFit"] = msgspec.structs.replace(fit, ignored_resources=both)
    return msgspec.structs.replace(profile, points=points, args=args)
