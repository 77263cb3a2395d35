"""Deletes rows that nothing else deletes: classes without pods, sessions, log-ins, tokens.

``actions.past.history`` trims the log by age, ``actions.scheduler.decisions`` decisions.
"""

from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction

from clusterstate import catalogue
from clusterstate.actions.people import tokens
from clusterstate.change_log import actors, changes
from clusterstate.database import sql
from clusterstate.queries.scheduler.decisions import CONFIGURATIONS_KEPT

LOG_INS_KEPT = timedelta(days=30)
"""How long failed log-ins, and who logged in when, are kept."""
_CLASSES_AT_ONCE = 5000

_UNUSED = """
    NOT EXISTS (SELECT FROM pod p WHERE p.class_id = c.id)
"""
_CANDIDATES = f"""
    SELECT id FROM scheduling_class c
    WHERE id > %s::bigint AND {_UNUSED} ORDER BY id LIMIT {_CLASSES_AT_ONCE}
"""
_TOLD_OF = """
    SELECT class_id FROM change WHERE class_id = ANY(%s)
    UNION SELECT previous_class_id FROM change WHERE previous_class_id = ANY(%s)
    UNION SELECT class_id FROM decision WHERE class_id = ANY(%s)
"""
_TOLD_OF_SINCE = """
    SELECT class_id FROM change WHERE revision > %s::bigint AND class_id = ANY(%s)
    UNION SELECT previous_class_id FROM change
    WHERE revision > %s::bigint AND previous_class_id = ANY(%s)
"""


def drop_unused_classes() -> int:
    """Delete scheduling classes that no pod has, and that no change and no decision names.

    Processes cache the ids of classes. Those that create pods compare the admission epoch while
    they hold the admission lock; the deletion advances the epoch under the exclusive lock, so they
    drop the ids before they use one again. A writer that inserts or finds a class locks its row
    until its pod is committed: so classes are locked first, and checked again by a later statement.
    Decisions and changes are only added for existing pods.
    """
    dropped = last = 0
    mark = changes.watermark()
    while True:
        rows = sql.fetch(_CANDIDATES, (last,))
        if not rows:
            return dropped
        ids = [row[0] for row in rows]
        last = ids[-1]
        array = sql.Int8s(ids)
        told_of = {row[0] for row in sql.fetch(_TOLD_OF, (array, array, array))}
        unused = [one for one in ids if one not in told_of]
        if not unused:
            continue
        with transaction.atomic():
            catalogue.lock_for_writing()
            locked = sql.fetch(
                "SELECT id FROM scheduling_class WHERE id = ANY(%s) ORDER BY id"
                " FOR UPDATE SKIP LOCKED",
                (sql.Int8s(unused),),
            )
            array = sql.Int8s([row[0] for row in locked])
            # A pod may have come and gone since: its changes name its class.
            told_of = {row[0] for row in sql.fetch(_TOLD_OF_SINCE, (mark, array, mark, array))}
            doomed = [row[0] for row in locked if row[0] not in told_of]
            dropped += sql.run(
                f"DELETE FROM scheduling_class c WHERE id = ANY(%s) AND {_UNUSED}",
                (sql.Int8s(doomed),),
            )
            catalogue.advance()


def drop_old_access(*, now: datetime) -> None:
    """Delete ended sessions, old log-ins and failures, and tokens that expired long ago.

    The tables of sessions and log-ins belong to applications that only web processes load.
    """
    sql.run("DELETE FROM django_session WHERE expire_date < %s::timestamptz", (now,))
    failures = timedelta(hours=settings.AXES_COOLOFF_TIME)
    sql.run(
        "DELETE FROM axes_accessattempt WHERE attempt_time < %s::timestamptz",
        (now - max(failures, LOG_INS_KEPT),),
    )
    for table in ("axes_accesslog", "axes_accessfailurelog"):
        sql.run(
            f"DELETE FROM {table} WHERE attempt_time < %s::timestamptz",  # a constant
            (now - LOG_INS_KEPT,),
        )
    sql.run(
        "DELETE FROM django_admin_log WHERE action_time < %s::timestamptz", (now - LOG_INS_KEPT,)
    )
    tokens.drop_expired(now=now)


def drop_old_actors(*, now: datetime) -> int:
    """Delete actor rows that no process used while their changes are kept.

    A process caches the number of a user (`change_log.actors`) for half a day and then looks it up
    again, so the row of an active user stays.
    """
    retention = timedelta(days=actors.KEPT_DAYS, seconds=settings.HISTORY_SECONDS)
    return sql.run("DELETE FROM actor WHERE used_at < %s::timestamptz", (now - retention,))


def drop_leftovers(*, now: datetime) -> None:
    """Delete reports of deleted nodes and ended processes, and rows that no query can reach.

    The latter are spans of atomic changes before the log begins, and earlier configurations.

    A configuration is kept while it is among the last ones, while a kept decision may have been
    made under it, and while a reserved pod was decided under it.
    """
    sql.run(
        "DELETE FROM node_usage u WHERE NOT EXISTS (SELECT FROM node n WHERE n.name = u.node_name)"
    )
    sql.run(
        "DELETE FROM atomic_span s USING history h LEFT JOIN past_head p ON p.id = 1"
        " WHERE h.id = 1 AND upper(s.revisions) <= coalesce(p.since_revision, h.trimmed_revision)"
    )
    sql.run("DELETE FROM process_metric WHERE at < clock_timestamp() - interval '1 hour'")
    sql.run(
        """
        DELETE FROM scheduler_configuration
        WHERE revision < (SELECT max(revision) FROM scheduler_configuration
                          WHERE at < %s::timestamptz)
          AND revision <= (SELECT max(revision) FROM scheduler_configuration) - %s::bigint
          AND revision NOT IN (SELECT profile_revision FROM reservation)
        """,
        (now - timedelta(seconds=2 * settings.DECISION_SECONDS), CONFIGURATIONS_KEPT),
    )
