"""Ends open answers whose clients have lost the right to them.

A watch is authorised when it begins and lasts for up to an hour. So that it ends when its token is
revoked or expires, its user is disabled or loses a group, a loop checks the clients of all open
watches and long polls of this process every ``EVERY_SECONDS``: each token and each right once, for
all answers together. A watch that must end gets an ERROR event with the Status 401 or 403 that a
new request would get. While the database does not answer, all answers stay open.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

import structlog
from django.db import Error as DatabaseError
from django.db import connection

from api.access import auth
from api.access.impersonation import Claim
from api.server import connections
from clusterstate.access.rules import Attributes
from clusterstate.objects.values.errors import StatusError

logger = structlog.get_logger(__name__)

T = TypeVar("T")
EVERY_SECONDS: Final = 2.0

_Claim = tuple[Claim, Attributes]
"""The identity in a request's headers, and the right that the request needs."""


class _Keeper:
    """Checks the rights of the open answers of one event loop, while there are any."""

    def __init__(self) -> None:
        self._open: dict[_Claim, set[asyncio.Future[StatusError]]] = {}
        self._task: asyncio.Task[None] | None = None

    def hold(self, claims: Sequence[_Claim]) -> "asyncio.Future[StatusError]":
        """Return a future that gets the error as soon as one of the claims becomes invalid."""
        lost: asyncio.Future[StatusError] = asyncio.get_running_loop().create_future()
        for claim in claims:
            self._open.setdefault(claim, set()).add(lost)
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._keep())
        return lost

    def let_go(self, claims: Sequence[_Claim], lost: "asyncio.Future[StatusError]") -> None:
        """Stop checking the claims for an answer that has ended."""
        for claim in set(claims):
            held = self._open[claim]
            held.discard(lost)
            if not held:
                del self._open[claim]

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        thread = ThreadPoolExecutor(1, thread_name_prefix="rights")
        try:
            while self._open:
                await asyncio.sleep(EVERY_SECONDS)
                found = await loop.run_in_executor(thread, _lost, list(self._open))
                for claim, error in found.items():
                    for lost in self._open.get(claim, ()):
                        if not lost.done():
                            lost.set_result(error)
        finally:
            thread.submit(connection.close)
            thread.shutdown(wait=False)


def _lost(claims: list[_Claim]) -> dict[_Claim, StatusError]:
    """Return the claims that are no longer valid, each with an error. May query."""
    found: dict[_Claim, StatusError] = {}
    try:
        with connections.used():
            for claim in claims:
                try:
                    auth.require(auth.authenticate(claim[0]), claim[1])
                except StatusError as error:
                    if error.code in (401, 403):
                        found[claim] = error
                except DatabaseError:
                    raise
                except Exception:
                    # It must not keep others from being looked at, as it would in each pass.
                    logger.exception("right_not_judged")
    except DatabaseError as error:
        logger.warning("rights_unknown", error=type(error).__name__)
        return {}
    return found


_keepers: dict[asyncio.AbstractEventLoop, _Keeper] = {}


async def run_while_allowed(work: Coroutine[Any, Any, T], sender: Claim, *wants: Attributes) -> T:
    """Return the result of ``work``; cancel it if the client loses one of the rights ``wants``.

    Raises:
        Unauthorized: the token is revoked or has expired, or its user was disabled.
        AccessDenied: the user lost the right.
    """
    loop = asyncio.get_running_loop()
    keeper = _keepers.get(loop)
    if keeper is None:
        for one in [one for one in _keepers if one.is_closed()]:
            del _keepers[one]
        keeper = _keepers[loop] = _Keeper()
    claims = [(sender, one) for one in wants]
    lost = keeper.hold(claims)
    working = asyncio.ensure_future(work)
    try:
        both: set[asyncio.Future[Any]] = {working, lost}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise lost.result()
    finally:
        keeper.let_go(claims, lost)
        if not working.done():
            working.cancel()
            await asyncio.wait({working})
