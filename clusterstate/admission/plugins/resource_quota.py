"""ResourceQuota: limits on the sum of a namespace's objects.

Pure: an `Account` is a quota with its usage; ``charge`` adds objects to accounts or refuses them.
`actions.writing.quotas` locks and stores the accounts. Rules: apiserver
admission/plugin/resourcequota/controller.go CheckRequest, v1.36.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.rules.usage import (
    COMPUTE,
    NONE,
    NOTHING,
    ZERO,
    Usage,
    kinds_counted,
    tracks,
)
from clusterstate.objects.values.errors import Forbidden, StatusError
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.quantity import Quantity

_LOOKED_UP: Final = frozenset({"Terminating", "NotTerminating", "PriorityClass"})
"""Scopes that look at a pod beyond its scheduling class."""


class _Selector(msgspec.Struct, frozen=True):
    """One requirement of a quota's scopes: scope, operator and values."""

    scope: str
    operator: str
    values: frozenset[str]

    def matches(self, usage: Usage) -> bool:
        """Return whether an object is within the scope; only claims have attribute classes."""
        if self.scope == "VolumeAttributesClass":
            return "persistentvolumeclaims" in usage.amounts and self._matches_names(
                usage.attribute_classes
            )
        if not usage.is_pod:
            return False
        if self.scope == "PriorityClass":
            name = usage.priority_class
            return self._matches_names(frozenset({name} if name else ()))
        return {
            "Terminating": usage.terminating,
            "NotTerminating": not usage.terminating,
            "BestEffort": usage.best_effort,
            "NotBestEffort": not usage.best_effort,
            "CrossNamespacePodAffinity": usage.cross_namespace,
        }.get(self.scope, False)

    def _matches_names(self, names: frozenset[str]) -> bool:
        if self.operator == "In":
            return bool(names & self.values)
        if self.operator == "NotIn":
            return not names or bool(names - self.values)
        return bool(names) == (self.operator == "Exists")


def _selectors(spec: Manifest) -> tuple[_Selector, ...]:
    plain = [_Selector(scope, "Exists", frozenset()) for scope in spec.get("scopes") or ()]
    expressions = (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    return (
        *plain,
        *(
            _Selector(
                one.get("scopeName") or "",
                one.get("operator") or "",
                frozenset(one.get("values") or ()),
            )
            for one in expressions
        ),
    )


class Account:
    """A quota and its usage. ``used`` lacks resources that are not counted yet."""

    def __init__(self, manifest: Manifest) -> None:
        spec, status = manifest.get("spec") or {}, manifest.get("status") or {}
        self.name: str = manifest["metadata"]["name"]
        self.spec: Manifest = spec
        self.hard = _parsed(spec.get("hard") or {})
        self.used = {n: a for n, a in _parsed(status.get("used") or {}).items() if n in self.hard}
        self._selectors = _selectors(spec)
        self.looks_into_pods = any(one.scope in _LOOKED_UP for one in self._selectors)
        """Whether it looks at pods beyond their scheduling class."""
        self._required = COMPUTE & self.hard.keys()

    def counts(self, usage: Usage) -> dict[str, Quantity]:
        """Return the amounts that an object uses of this quota, without zeros."""
        if not all(selector.matches(usage) for selector in self._selectors):
            return {}
        return {name: n for name, n in usage.amounts.items() if n and name in self.hard}

    def missing(self, usage: Usage) -> dict[str, list[int]]:
        """Return the resources that containers of a new pod must state and omit.

        By resource, the indices of the containers; init containers come after the others.
        """
        if not self._required or not all(one.matches(usage) for one in self._selectors):
            return {}
        found: dict[str, list[int]] = {}
        for place, names in enumerate(usage.resource_names):
            for name in self._required - names:
                found.setdefault(name, []).append(place)
        return found

    def unknown(self, kind: Kind) -> list[str]:
        """Return the quota's resources for a kind, if one of them is not counted yet, else none."""
        names = sorted(name for name in self.hard if tracks(kind, name))
        return names if any(name not in self.used for name in names) else []

    def change(self, after: Mapping[str, Quantity], before: Mapping[str, Quantity] = NONE) -> None:
        """Add an object's usage, and subtract its usage before the change."""
        for name in {**after, **before}:
            if name in self.used:
                total = self.used[name].add(after.get(name, ZERO)).sub(before.get(name, ZERO))
                self.used[name] = total if total.sign > 0 else ZERO

    def reset(self) -> None:
        """Set every resource that can be counted to zero."""
        self.used = {name: ZERO for name in self.hard if kinds_counted(name)}

    def status(self) -> Manifest:
        """Return the quota's status."""
        return {"hard": _text(self.hard), "used": _text(self.used)}


def _parsed(amounts: Mapping[str, str | int | float]) -> dict[str, Quantity]:
    return {name: Quantity.parse(amount) for name, amount in amounts.items()}


def _text(amounts: Mapping[str, Quantity]) -> dict[str, str]:
    return {name: str(amount) for name, amount in sorted(amounts.items())}


class Charge(msgspec.Struct, frozen=True):
    """The amounts that an object adds to each account: ``after`` and ``before`` the request."""

    after: tuple[dict[str, Quantity], ...]
    before: tuple[dict[str, Quantity], ...]


def charge(
    accounts: Sequence[Account],
    kind: Kind,
    name: str,
    usage: Usage,
    before: Usage = NOTHING,
    *,
    containers: Callable[[], Sequence[str]] = list,
) -> Charge:
    """Charge quotas for an object that is created, or whose usage changes from ``before``.

    ``name`` is the object's, and ``containers`` returns the names of a pod's containers, as
    ``Account.missing`` orders them.

    Raises:
        Forbidden: the object exceeds one of the quotas; nothing is charged.
    """
    for account in accounts:
        if missing := account.missing(usage):
            names = containers()
            listing = "; ".join(
                f"{resource} for: {','.join(sorted({names[place] for place in missing[resource]}))}"
                for resource in sorted(missing)
            )
            raise _forbidden(kind, name, f"failed quota: {account.name}: must specify {listing}")
        if unknown := account.unknown(kind):
            message = f"status unknown for quota: {account.name}, resources: {','.join(unknown)}"
            raise _forbidden(kind, name, message)
    after = tuple(account.counts(usage) for account in accounts)
    earlier = tuple(account.counts(before) for account in accounts)
    for account, more, less in zip(accounts, after, earlier, strict=True):
        requested = {n: a.sub(less[n]) if n in less else a for n, a in more.items()}
        requested = {n: a for n, a in requested.items() if a.sign > 0}
        exceeded = [n for n in requested if account.used[n].add(requested[n]) > account.hard[n]]
        if exceeded:
            message = (
                f"exceeded quota: {account.name}, requested: {_amounts_text(requested, exceeded)},"
                f" used: {_amounts_text(account.used, exceeded)},"
                f" limited: {_amounts_text(account.hard, exceeded)}"
            )
            raise _forbidden(kind, name, message)
    for account, more, less in zip(accounts, after, earlier, strict=True):
        account.change(more, less)
    return Charge(after, earlier)


def take_back(accounts: Sequence[Account], charged: Charge) -> None:
    """Undo a charge."""
    for account, after, before in zip(accounts, charged.after, charged.before, strict=True):
        account.change(before, after)


def _amounts_text(amounts: Mapping[str, Quantity], names: Sequence[str]) -> str:
    return ",".join(f"{name}={amounts[name]}" for name in sorted(names))


def _forbidden(kind: Kind, name: str, why: str) -> StatusError:
    return Forbidden(
        f'{kind.resource} "{name}" is forbidden: {why}', {"name": name, "kind": kind.resource}
    )


def kinds_of(specs: Sequence[Manifest]) -> list[Kind]:
    """Return the kinds whose objects count in quotas with these specs, pods first."""
    names = {name for spec in specs for name in spec.get("hard") or ()}
    found = {kind.name: kind for name in sorted(names) for kind in kinds_counted(name)}
    return sorted(found.values(), key=lambda kind: (kind.name != "Pod", kind.code))


def uncounted(spec: Manifest) -> list[str]:
    """Return the resources that a quota with this spec limits and no kind uses."""
    return sorted(name for name in spec.get("hard") or () if not kinds_counted(name))
