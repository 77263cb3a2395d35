"""Which namespaces have changes or budgets, or are terminating."""

from collections.abc import Sequence
from typing import Final

import msgspec

from clusterstate.change_log import lineage
from clusterstate.database import sql
from clusterstate.objects.registry.kinds import KINDS

_AUTHORITY_KEY: Final = "ca.crt"
_KEPT: Final = ("ServiceAccount", "ConfigMap", "Service", "Endpoints", "EndpointSlice")


class Belongings(msgspec.Struct, frozen=True):
    """Which of the objects that every namespace should have exist in this one."""

    namespace: str
    has_account: bool
    has_authority: bool
    is_current: bool
    """Whether the certificate authority stands in its ConfigMap."""
    has_service: bool


_BELONGINGS = f"""
SELECT n.name,
       EXISTS (SELECT 1 FROM generic_object o WHERE o.kind = {KINDS["ServiceAccount"].code}
               AND o.namespace = n.name AND o.name = %s),
       m.id IS NOT NULL, coalesce(position(%s IN d.text) > 0, false),
       EXISTS (SELECT 1 FROM service s WHERE s.namespace = n.name AND s.name = %s)
FROM namespace n
LEFT JOIN generic_object m ON m.kind = {KINDS["ConfigMap"].code}
     AND m.namespace = n.name AND m.name = %s
LEFT JOIN document d ON d.id = m.document_id
WHERE n.deletion_at IS NULL AND (%s::text[] IS NULL OR n.name = ANY(%s::text[]))
ORDER BY n.name
"""


def belongings(
    names: Sequence[str] | None, *, account: str, authority: tuple[str, str], service: str
) -> list[Belongings]:
    """Return which objects the namespaces ``names`` have, or all if ``None``. Queries once.

    The objects are the ServiceAccount ``account``, the ConfigMap with its content ``authority``,
    and the Service ``service``. Terminating namespaces are left out.
    """
    which = None if names is None else sql.Texts(list(names))
    config_map, text = authority
    # All of its data, so that another member cannot contain this text.
    held = '"data":' + msgspec.json.encode({_AUTHORITY_KEY: text}).decode()
    rows = sql.fetch(_BELONGINGS, (account, held, service, config_map, which, which))
    return [Belongings(*row) for row in rows]


def namespaces_with_changes(cursor: int, mark: int, names: Sequence[str]) -> list[str] | None:
    """Return namespaces that changed, or in which objects with these ``names`` did.

    The objects are accounts, ConfigMaps, Services and their endpoints. ``None``: no longer known.
    Queries up to twice, by index.
    """
    if cursor < lineage.kept_after():
        return None
    rows = sql.fetch(
        f"SELECT DISTINCT CASE WHEN kind = {KINDS['Namespace'].code} THEN name ELSE namespace END"
        " FROM change WHERE revision > %s::bigint AND revision <= %s::bigint"
        f" AND (kind = {KINDS['Namespace'].code} OR kind = ANY(%s) AND name = ANY(%s))",
        (
            cursor, mark,
            sql.Int4s([KINDS[one].code for one in _KEPT]),
            sql.Texts(list(names)),
        ),
    )  # fmt: skip
    return [row[0] for row in rows]


def terminating_namespaces() -> list[str]:
    """Return the names of the namespaces that are being deleted. Queries once."""
    return [row[0] for row in sql.fetch("SELECT name FROM namespace WHERE deletion_at IS NOT NULL")]


def changed_namespaces(cursor: int, mark: int, kinds: Sequence[str]) -> list[str] | None:
    """Return the namespaces in which objects of these kinds changed, ``None`` if that is not known.

    Queries up to twice, by index.
    """
    if mark <= cursor:
        return []
    if cursor < lineage.kept_after():
        return None
    rows = sql.fetch(
        "SELECT DISTINCT namespace FROM change"
        " WHERE revision > %s::bigint AND revision <= %s::bigint AND kind = ANY(%s)",
        (cursor, mark, sql.Int4s([KINDS[kind].code for kind in kinds])),
    )
    return [row[0] for row in rows]


def budget_namespaces() -> list[str]:
    """Return the namespaces that have disruption budgets. Queries once."""
    rows = sql.fetch("SELECT DISTINCT namespace FROM pod_disruption_budget ORDER BY namespace")
    return [row[0] for row in rows]


def unsettled_namespaces() -> list[str]:
    """Return the namespaces whose quotas still count pods that have ended. Queries once."""
    return [name for (name,) in sql.fetch("SELECT DISTINCT namespace FROM usage_change ORDER BY 1")]
