"""The loop and the threads of an advisor: it follows the change log and answers questions.

::

    the loop     keeps the mirror up to date, writes heartbeats
    short        one thread takes only short questions
    any          the others take short ones first, then long ones

``run`` is what the advisor's loop calls (``scheduling.processes``). Any number of advisors may run,
on any host: each question is taken by one of them. An advisor writes nothing, so it needs no lock.
After each read the loop pauses for a quarter of a second, longer after a long one: a read costs
this process and the database something even if there are no changes. Each question first reads the
changes since the last read, in some milliseconds. The answering threads have a low priority:
questions may wait, pods and requests may not.
"""

import threading
import time
from collections.abc import Callable

import msgspec
import redis
import structlog
from django.db import Error as DatabaseError
from django.db import connection

from clusterstate.change_log import wake
from clusterstate.database import sql
from clusterstate.health import heartbeats
from clusterstate.objects.values.errors import ServiceUnavailable, StatusError
from clusterstate.processes import collector, priority
from scheduling.answers import advisor, live, registry

logger = structlog.get_logger(__name__)

NAME = "advisor"
"""The loop's name in heartbeats."""
THREADS = 4
_LOAD_SECONDS = 600.0
_LONGEST_REST = 1.0
_LONGEST_WAIT = 2.0
_REST = 10.0
_SHORTEST_REST = 0.25
_RETRY_SECONDS = 0.2
_MARGIN_SECONDS = 60.0
"""A question that exceeds its time by this many seconds counts as hung."""


def run(*, stopping: Callable[[], bool], pause: Callable[[float], None] = time.sleep) -> None:
    """Read changes and answer questions until ``stopping`` returns True.

    Raises:
        django.db.Error: the database failed; the threads have ended.
    """
    presence = advisor.Presence()
    turns = advisor.Turns(most=THREADS - 2)
    ended = threading.Event()
    threads = [
        threading.Thread(
            target=_answer_all, args=(presence, number, turns, ended), name=f"advisor-{number}"
        )
        for number in range(THREADS)
    ]
    with wake.Subscription(wake.CHANGES) as subscription:
        with heartbeats.patience(NAME, _LOAD_SECONDS):
            revision = live.follow()
            collector.calm()
        logger.info("advisor_follows", revision=revision, advisor=presence.name)
        for thread in threads:
            thread.start()
        try:
            while not stopping():
                heartbeats.beat(NAME)
                _show_presence(presence)
                began = time.monotonic()
                live.follow()
                took = time.monotonic() - began
                pause(min(max(_REST * took, _SHORTEST_REST), _LONGEST_REST))
                if not stopping():
                    subscription.wait(_LONGEST_WAIT)
        finally:
            ended.set()
            _leave(presence)
            for thread in threads:
                thread.join(2.0)


def _show_presence(presence: advisor.Presence) -> None:
    try:
        presence.tell()
    except (redis.RedisError, OSError) as error:
        logger.warning("advisor_without_redis", error=str(error))


def _leave(presence: advisor.Presence) -> None:
    try:
        presence.end(THREADS)
    except (redis.RedisError, OSError) as error:
        logger.debug("advisor_without_redis", error=str(error))


def _answer_all(
    presence: advisor.Presence, number: int, turns: advisor.Turns, ended: threading.Event
) -> None:
    """Answer one question after the other until the advisor ends.

    The thread has a heartbeat of its own, so that an advisor is also replaced if it still follows
    the log but its threads are stuck at questions.
    """
    priority.give_way()
    queues = [advisor.SHORT] if number == 0 else [advisor.SHORT, advisor.LONG]
    desk = advisor.Desk(presence.name, queues, turns)
    beats = f"{NAME}-{number}"
    while not ended.is_set():
        heartbeats.beat(beats)
        try:
            question = desk.take()
            if question is not None:
                id_, posed, seconds = question
                heartbeats.beat(beats, seconds + _MARGIN_SECONDS)
                desk.give(id_, lambda: _answered(posed, seconds))  # noqa: B023  # called at once
        except (redis.RedisError, OSError) as error:
            logger.debug("advisor_without_redis", error=str(error))
            ended.wait(_RETRY_SECONDS)
        except Exception:
            logger.exception("question_failed")
            ended.wait(_RETRY_SECONDS)
    desk.done()
    connection.close()
    heartbeats.rest(beats)


def _answered(posed: advisor.PendingQuestion, seconds: float) -> bytes:
    """Return the answer to a question as JSON; ``seconds`` is the time left.

    Raises:
        StatusError: the question is wrong, or cannot be answered now.
    """
    began = time.monotonic()
    if posed.name not in registry.QUESTIONS:
        raise ServiceUnavailable(
            f"this advisor is of another version of Stowage and cannot answer {posed.name!r}",
            {"retryAfterSeconds": 5},
        )
    try:
        sql.drop_dead_connection()
        document = msgspec.json.decode(posed.document)
        tell = advisor.teller(posed.name, document)
        return registry.answer(posed.name, document, until=time.monotonic() + seconds, tell=tell)
    except StatusError:
        raise
    except DatabaseError as error:
        connection.close()
        logger.warning("lost_the_database", work=posed.name, error=str(error).strip())
        raise ServiceUnavailable(
            "the database does not answer", {"retryAfterSeconds": 1}
        ) from error
    except Exception as error:
        logger.exception("question_failed", question=posed.name)
        raise StatusError(
            f"the advisor failed to answer ({posed.name}): {type(error).__name__}"
        ) from error
    finally:
        logger.debug(
            "question_answered", question=posed.name, seconds=round(time.monotonic() - began, 4)
        )
