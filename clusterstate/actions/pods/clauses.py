"""Parts that the statements on pods share."""

from typing import Final

from clusterstate.change_log import changes
from clusterstate.objects.registry.kinds import KINDS

POD: Final = KINDS["Pod"]
FINISHED: Final = ("Succeeded", "Failed")

_VERSIONED = (
    "document_id",
    "class_id",
    "node_name",
    "scheduled_at",
    "unschedulable",
    "phase",
    "eviction",
)


def returning_versions(row: str = "new", revision: str = "new.revision") -> str:
    """Return the RETURNING clause of a statement that writes pods, for ``log_versions`` to read.

    ``row`` is the version that was written; a deleted pod's last one is ``old``.
    """
    columns = [f"{row}.{name}" for name in ("id", "namespace", "name", "deletion_at", *_VERSIONED)]
    columns.append(f"nullif({row}.nominated_node_name, '') AS nominated_node_name")
    before = [f"old.{name} AS old_{name}" for name in ("revision", *_VERSIONED)]
    return f"RETURNING {', '.join([*columns, f'{revision} AS revision', *before])}"


def log_versions(source: str, verb: int = changes.MODIFIED, by: str = changes.BY_GATE) -> str:
    """Return an INSERT into the change log of the rows of ``source``.

    ``source``: a CTE of an UPDATE with ``returning_versions``. ``by``: the actor, as the session's
    setting or as columns of ``source``. The statement's one parameter is the time.
    """
    previous = ", ".join(f"previous_{name}" for name in _VERSIONED)
    before = ", ".join(f"old_{name}" for name in _VERSIONED)
    now = ", ".join(_VERSIONED)
    return f"""
    INSERT INTO change (revision, at, kind, verb, object_id, namespace, name, deletion_at,
                        nominated_node_name, previous_revision, {now}, {previous}, actor_id, cause)
    SELECT revision, %s::timestamptz, {KINDS["Pod"].code}, {verb}, id, namespace, name,
           deletion_at, nominated_node_name, old_revision, {now}, {before}, {by}
    FROM {source}"""


BY_ROW: Final = "actor_id, cause"
"""Columns of what ``log_versions`` logs, where each row was written by an actor of its own."""

# Statistics of a quiet hour let the planner estimate that almost no pod is pending. It would then
# begin with the pending pods and use a nested loop, backlog times batch. A CASE expression has no
# statistics, and `= ANY(array)` forces a look-up of the queue's rows by id.
PENDING = "CASE WHEN p.node_name = '' AND p.phase = 'Pending' THEN true ELSE false END"
