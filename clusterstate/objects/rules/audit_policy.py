"""Which requests are written to the audit log, and how much of each: audit.k8s.io/v1 Policy.

The first rule that matches a request says its level. Where none matches, nothing is written. Rules
are matched as staging/src/k8s.io/apiserver/pkg/audit/policy/checker.go matches them, v1.36: groups
and verbs exactly, resources with ``*``, ``*/subresource`` and ``resource/*``.

What carries a secret is never written above Metadata, whatever the policy says (`NEVER_SHOWN`).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec
import yaml

Level = Literal["None", "Metadata", "Request", "RequestResponse"]
Stage = Literal["RequestReceived", "ResponseStarted", "ResponseComplete", "Panic"]

NONE: Final = "None"
METADATA: Final = "Metadata"
REQUEST: Final = "Request"
REQUEST_RESPONSE: Final = "RequestResponse"
RECEIVED: Final = "RequestReceived"
STARTED: Final = "ResponseStarted"
COMPLETE: Final = "ResponseComplete"

NEVER_SHOWN: Final = frozenset(
    {
        ("", "secrets", ""),
        ("", "serviceaccounts", "token"),
        ("authentication.k8s.io", "tokenreviews", ""),
        ("stowage.dev", "webhooks", ""),
        ("stowage.dev", "webhooks", "replay"),
    }
)
"""Group, resource and subresource of requests whose bodies, or answers, hold a secret."""


class PolicyError(ValueError):
    """A policy that cannot be used; the message names the field."""


class RequestAttributes(msgspec.Struct, frozen=True):
    """The attributes of a request that rules match; ``resource`` is empty for non-resource paths.

    ``verb`` is a verb of the API, or the method in small letters where ``resource`` is empty.
    """

    verb: str
    path: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""


class _Resources(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    group: str = ""
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()

    def reach(self, action: RequestAttributes) -> bool:
        if self.group != action.group:
            return False
        if not self.resources:
            return True
        if self.resource_names and action.name not in self.resource_names:
            return False
        whole = f"{action.resource}/{action.subresource}" if action.subresource else action.resource
        for one in self.resources:
            if one in ("*", whole):
                return True
            if action.subresource and one == f"*/{action.subresource}":
                return True
            if one.endswith("/*") and one[:-2] == action.resource:
                return True
        return False


class _Rule(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    level: Level
    users: tuple[str, ...] = ()
    user_groups: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ()
    resources: tuple[_Resources, ...] = ()
    namespaces: tuple[str, ...] = ()
    non_resource_urls: tuple[str, ...] = msgspec.field(default=(), name="nonResourceURLs")
    omit_stages: tuple[Stage, ...] = ()
    omit_managed_fields: bool | None = None

    def matches(self, user: str, groups: Sequence[str], action: RequestAttributes) -> bool:
        if self.users and user not in self.users:
            return False
        if self.user_groups and not set(self.user_groups).intersection(groups):
            return False
        if self.verbs and action.verb not in self.verbs:
            return False
        if self.namespaces or self.resources:
            if not action.resource or (self.namespaces and action.namespace not in self.namespaces):
                return False
            return not self.resources or any(one.reach(action) for one in self.resources)
        if self.non_resource_urls:
            return not action.resource and any(
                _is_path(action.path, one) for one in self.non_resource_urls
            )
        return True


def _is_path(path: str, pattern: str) -> bool:
    if pattern.endswith("*"):
        return path.startswith(pattern[:-1])
    return path == pattern


class _Document(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    api_version: Literal["audit.k8s.io/v1"]
    kind: Literal["Policy"]
    rules: tuple[_Rule, ...]
    metadata: dict[str, Any] = {}
    omit_stages: tuple[Stage, ...] = ()
    omit_managed_fields: bool = False


class Verdict(msgspec.Struct, frozen=True):
    """How a request is written to the audit log: the level, and the stages that are left out."""

    level: Level
    omitted: frozenset[str] = frozenset()
    omit_managed_fields: bool = False


NOTHING: Final = Verdict("None")


class Policy:
    """A policy in force. Safe for threads; never changed once made."""

    def __init__(self, document: _Document) -> None:
        """Take a checked document."""
        self._document = document
        self._by_name = any(one.resource_names for rule in document.rules for one in rule.resources)
        self._verdicts: dict[tuple[Any, ...], Verdict] = {}

    def verdict(self, user: str, groups: tuple[str, ...], request: RequestAttributes) -> Verdict:
        """Return how much of a request is written; remembered, since most are alike."""
        key = (
            user, groups, request.verb, request.group, request.resource, request.subresource,
            request.namespace, request.name if self._by_name else "",
            "" if request.resource else request.path,
        )  # fmt: skip
        found = self._verdicts.get(key)
        if found is None:
            found = self._judge(user, groups, request)
            if len(self._verdicts) >= _MOST_REMEMBERED:
                self._verdicts.clear()
            self._verdicts[key] = found
        return found

    def _judge(self, user: str, groups: tuple[str, ...], request: RequestAttributes) -> Verdict:
        rule = next(
            (one for one in self._document.rules if one.matches(user, groups, request)), None
        )
        if rule is None or rule.level == NONE:
            return NOTHING
        level: Level = rule.level
        if (request.group, request.resource, request.subresource) in NEVER_SHOWN:
            level = "Metadata"
        fields = rule.omit_managed_fields
        return Verdict(
            level,
            frozenset({*self._document.omit_stages, *rule.omit_stages}),
            self._document.omit_managed_fields if fields is None else fields,
        )


_MOST_REMEMBERED: Final = 20_000


def parse(text: str) -> Policy:
    """Return the policy that a file's text holds, YAML or JSON.

    Raises:
        PolicyError: it is none; the message names the field.
    """
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise PolicyError(f"it is not YAML: {' '.join(str(error).split())}") from None
    return _checked(document)


def _checked(value: Any) -> Policy:
    try:
        document = msgspec.convert(value, _Document)
    except msgspec.ValidationError as error:
        raise PolicyError(str(error)) from None
    if not document.rules:
        raise PolicyError(
            "rules: at least one rule is required, since without rules no request would be recorded"
        )
    for number, rule in enumerate(document.rules):
        where = f"rules[{number}]"
        if rule.non_resource_urls and (rule.resources or rule.namespaces):
            raise PolicyError(
                f"{where}: a rule may have either resources or nonResourceURLs, not both"
            )
        for url in rule.non_resource_urls:
            if url != "*" and (not url.startswith("/") or "*" in url[:-1]):
                raise PolicyError(
                    f'{where}.nonResourceURLs: "{url}" has to begin with /, and * may only end it'
                )
        for one in rule.resources:
            if one.resource_names and not one.resources:
                raise PolicyError(f"{where}.resources: resourceNames need resources")
    return Policy(document)


_DEFAULT: Final[Mapping[str, Any]] = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": [RECEIVED],
    "rules": [
        {
            "level": NONE,
            "nonResourceURLs": ["/healthz*", "/livez*", "/readyz*", "/metrics", "/version*",
                                "/openapi*", "/static/*"],
        },
        # What agents report all the time; the change log says who reported what.
        {
            "level": NONE,
            "userGroups": ["system:nodes"],
            "resources": [{"resources": ["nodes/status", "pods/status"]}],
        },
        {
            "level": NONE,
            "resources": [
                {"resources": ["events"]},
                {"group": "events.k8s.io", "resources": ["events"]},
                {"group": "coordination.k8s.io", "resources": ["leases"]},
            ],
        },
        # Who reads secrets is worth knowing.
        {"level": METADATA, "resources": [{"resources": ["secrets", "serviceaccounts/token"]}]},
        {"level": NONE, "verbs": ["get", "list", "watch", "head", "options"]},
        {"level": METADATA},
    ],
}  # fmt: skip
DEFAULT: Final = _checked(_DEFAULT)
"""Every write at Metadata, and reads of secrets; no other reads, no heartbeats, no events."""
