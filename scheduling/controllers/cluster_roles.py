"""Writes the rules of aggregated ClusterRoles into the roles that aggregate them.

Authorization evaluates the aggregation itself for each request (``clusterstate.access.policy``), so
no request waits for this controller. It serves readers of a role's ``rules``, such as ``kubectl
describe clusterrole admin``. Rule: pkg/controller/clusterroleaggregation, v1.36.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import structlog

from clusterstate.access import authorizer
from clusterstate.access.rules import Rule, rules_of
from clusterstate.actions import objects
from clusterstate.actions.loops import aside, controller_state
from clusterstate.actions.loops.aside import ObjectRef
from clusterstate.change_log import changes
from clusterstate.objects.values.errors import NotFound
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.wire.managed_fields import Manager
from clusterstate.queries.objects.namespaces import changed_namespaces

logger = structlog.get_logger(__name__)

NAME: Final = "cluster-roles"
_MANAGER: Final = Manager("clusterrole-aggregation-controller", "")


def follow(now: datetime) -> int:
    """Fill the rules of roles that aggregate others; return how many roles changed."""
    cursor, mark = controller_state.cursor(NAME), changes.watermark()
    if cursor is not None and mark <= cursor:
        return 0
    changed = 0
    if cursor is None or changed_namespaces(cursor, mark, ("ClusterRole",)) != []:
        changed = _fill_all(now)
    controller_state.set_cursor(NAME, mark)
    return changed


def _fill_all(now: datetime) -> int:
    aggregated = authorizer.read().aggregated

    def fill(names: Sequence[str]) -> int:
        return sum(_fill(name, aggregated[name], now) for name in names)

    parts = aside.each(
        NAME,
        list(aggregated),
        fill,
        which=lambda name: ObjectRef("ClusterRole", name=name),
        now=now,
    )
    changed = sum(parts)
    if changed:
        logger.info("roles_aggregated", count=changed)
    return changed


def _fill(name: str, rules: tuple[Rule, ...], now: datetime) -> int:
    """Write the rules into one role, unless they are equal or it aggregates no longer."""

    def change(old: Manifest) -> Manifest:
        if old.get("aggregationRule") is None or rules_of(old.get("rules")) == rules:
            return old
        return {**old, "rules": [rule.manifest() for rule in rules]}

    try:
        done = objects.update("ClusterRole", "", name, change, now=now, manager=_MANAGER)
    except NotFound:
        return 0
    return int(done.changed)
