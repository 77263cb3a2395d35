"""``extenders`` of a KubeSchedulerConfiguration: HTTP services that filter and score nodes.

Each becomes a plugin of every profile, called ``Extender`` and its URL, asked after all other
filters. Fields and their meaning: kube-scheduler ``pkg/scheduler/extender.go``, v1.36.
``bindVerb``, ``preemptVerb`` and parts of ``tlsConfig`` are refused, not ignored.
"""

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from clusterstate.objects.errors import DUPLICATE, FORBIDDEN, REQUIRED, FieldError
from scheduling.framework.configuration import PluginUse, Profile
from scheduling.framework.plugin_args import NodeResourcesFitArgs
from scheduling.framework.reading import Field, check_label_name

_DEFAULT_SECONDS: Final = 5.0
_LONGEST_SECONDS: Final = 60.0
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0}
_TLS_REFUSED: Final = ("serverName", "certData", "keyData", "caData")


class ExtenderArgs(msgspec.Struct, frozen=True, kw_only=True):
    """One extender. ``managed``: it is asked only about pods that ask for one of these resources.

    ``filter_verb`` or ``prioritize_verb`` may be empty, not both. ``seconds``: of one call.
    """

    name: str
    url_prefix: str
    filter_verb: str = ""
    prioritize_verb: str = ""
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
    """What was read: the arguments, and resources that NodeResourcesFit leaves to the extender."""

    args: ExtenderArgs
    ignored_by_scheduler: frozenset[str]


def read(top: Field) -> list[Extender]:
    """Return the extenders of a configuration; what is wrong with them is noted."""
    found = [_read(field) for field in top.objects("extenders")]
    seen: set[str] = set()
    for number, one in enumerate(found):
        if one.args.name in seen:
            path = f"extenders[{number}].urlPrefix"
            top.errors.append(FieldError(DUPLICATE, path, one.args.url_prefix))
        seen.add(one.args.name)
    return found


def _read(field: Field) -> Extender:
    errors = field.errors
    url = field.text("urlPrefix")
    scheme = _scheme(url)
    if not url:
        errors.append(FieldError(REQUIRED, field.child("urlPrefix")))
    elif not scheme:
        field.error("urlPrefix", url, 'must be "http://host..." or "https://host...", without user')
    if field.boolean("enableHTTPS", default=scheme == "https") != (scheme == "https"):
        field.error("enableHTTPS", url, "must say the same as the scheme of urlPrefix")
    filter_verb, prioritize_verb = field.text("filterVerb"), field.text("prioritizeVerb")
    for verb in ("bindVerb", "preemptVerb"):
        if field.text(verb):
            detail = "is not supported: write a plugin with bind or post_filter instead"
            errors.append(FieldError(FORBIDDEN, field.child(verb), None, detail))
    if not filter_verb and not prioritize_verb:
        detail = "an extender needs filterVerb or prioritizeVerb"
        errors.append(FieldError(REQUIRED, field.child("filterVerb"), None, detail))
    weight = field.integer("weight", 1)
    if prioritize_verb and not 1 <= weight <= 1000:
        field.error("weight", weight, "must be between 1 and 1000")
    seconds = _seconds(field)
    tls = field.object("tlsConfig") or Field({}, field.child("tlsConfig"), errors)
    for name in _TLS_REFUSED:
        if tls.take(name):
            detail = "is not supported: name files (caFile, certFile, keyFile)"
            errors.append(FieldError(FORBIDDEN, tls.child(name), None, detail))
    managed, ignored = _resources(field)
    args = ExtenderArgs(
        name=f"Extender {url}",
        url_prefix=url.rstrip("/"),
        filter_verb=filter_verb,
        prioritize_verb=prioritize_verb,
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
    """Return the scheme of a URL that can be asked, empty for any other."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # ValueError unless it is a number up to 65535
    except ValueError:
        return ""
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        return ""
    return parts.scheme


def _seconds(field: Field) -> float:
    """Return ``httpTimeout``, such as "100ms" or "5s"; 5 s where it is absent."""
    given: Any = field.take("httpTimeout")
    if given is None:
        return _DEFAULT_SECONDS
    for unit, size in _UNITS.items():
        number = str(given).removesuffix(unit)
        if number != str(given) and number.replace(".", "", 1).isdecimal():
            seconds = float(number) * size
            if 0 < seconds <= _LONGEST_SECONDS:
                return seconds
    shown = given if isinstance(given, str | int | float) else None
    field.error("httpTimeout", shown, 'must be a duration above 0 and at most "60s", such as "1s"')
    return _DEFAULT_SECONDS


def _resources(field: Field) -> tuple[frozenset[str], frozenset[str]]:
    managed, ignored = set(), set()
    for one in field.objects("managedResources"):
        name = one.text("name")
        check_label_name(name, one.child("name"), field.errors)
        if "/" not in name:
            one.error("name", name, "must be an extended resource, such as example.com/device")
        if one.boolean("ignoredByScheduler", default=False):
            ignored.add(name)
        one.finish()
        managed.add(name)
    return frozenset(managed), frozenset(ignored)


def extended(profile: Profile, extenders: Sequence[Extender]) -> Profile:
    """Return a profile with the extenders at the end of its filters and scores."""
    if not extenders:
        return profile
    points, args = dict(profile.points), dict(profile.args)
    for extender in extenders:
        name = extender.args.name
        args[name] = extender.args
        if extender.args.filter_verb:
            points["filter"] = (*points.get("filter", ()), PluginUse(name))
        if extender.args.prioritize_verb:
            points["score"] = (*points.get("score", ()), PluginUse(name, extender.args.weight))
    ignored = frozenset().union(*(one.ignored_by_scheduler for one in extenders))
    fit = args.get("NodeResourcesFit")
    if ignored and isinstance(fit, NodeResourcesFitArgs):
        both = tuple(sorted(ignored.union(fit.ignored_resources)))
        args["NodeResourcesFit"] = msgspec.structs.replace(fit, ignored_resources=both)
    return msgspec.structs.replace(profile, points=points, args=args)
