"""A cache of page fragments, and how often open pages refresh them.

::

    a page asks for a fragment, and names the newest revision that it has heard of
        --> rendered at that revision or later: the cached answer
        --> rendered a moment ago, and many pages are open: the cached answer, marked as behind, so
            that the page asks once more
        --> otherwise rendered by the first request; requests that come meanwhile wait a moment for
            it, or get the previous answer if that is not old
        --> the page shows this answer already: 204, and nothing is sent or drawn

Fragments with cluster data only are cached per set of rights; others per session. The cost of each
fragment is measured, and ``pause`` derives from it how long a page waits between two refreshes: all
fragments of open pages together take ``SHARE`` of one CPU. This budget is split per user, not per
page: many open pages slow only their owner.

The cache is lost with the process.
"""

import gzip
import hashlib
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec
from django.http import HttpRequest, HttpResponse
from django.utils.text import compress_string

from clusterstate.access import authorizer, people
from clusterstate.change_log import changes
from clusterstate.objects.values.numbers import natural
from clusterstate.processes import memory

HEARD: Final = "Stowage-Heard"
"""Request header: the newest revision that the page has heard of."""
HAS: Final = "Stowage-Has"
"""Request header: the ``TAG`` of the answer that the page shows."""
MARK: Final = "Stowage-Mark"
"""Response header: the revision of the answer."""
TAG: Final = "Stowage-Tag"
PERSONAL: Final = "stowage.personal"
"""Key of ``request.META``: the answer depends on the user."""
ENOUGH: Final = "stowage.looks-enough"
"""Key of ``request.META``: a function of (revision, age in seconds) that returns whether such data
is fresh enough for the page."""
AS_OF: Final = "stowage.looks-as-of"
"""Key of ``request.META``: the revision that the answer shows, if it is an earlier one."""
_RIGHTS_MOVED: Final = "stowage.looks-rights-moved"
"""Key of ``request.META``: rights changed while the answer was rendered."""

SHARE: Final = 0.05
"""CPU that all fragments together take, as a share of one core."""
LEAST_PAUSE: Final = 1.0
MOST_PAUSE: Final = 30.0
_ASKING_SECONDS: Final = 0.003
"""Cost of a request that renders nothing."""
_MOST_SECONDS: Final = 0.5
"""Upper bound of a measured cost: time spent waiting for an advisor is no CPU time."""
_NEWEST: Final = 0.5
"""Weight of the newest cost in the moving average."""
_OPEN_SECONDS: Final = 2 * MOST_PAUSE
"""A fragment not requested for this long has no viewers."""
_PATIENCE_SECONDS: Final = 0.2
_MOST_PATIENCE_SECONDS: Final = 2.0
"""A request without a cached answer waits this long for the one in progress, then renders its own:
the one in progress may wait for an advisor, and a process has few threads."""
_MOST_ADDRESSES: Final = 500
"""Addresses per user whose cost is remembered."""
_MOST_KEPT: Final = 200
_MOST_BYTES: Final = 1 << 20
_SMALL: Final = 200
_TIME: Final = re.compile(rb"(<time\b[^>]*>)[^<]*")

Make = Callable[[], HttpResponse]
Scope = tuple[str, str]
"""Who may get a cached answer: all people with these rights, or one session with them."""


class Look(msgspec.Struct, frozen=True):
    """A request for a part of a page. ``scopes``: users who may share the answer, wide to narrow.

    ``question``: path and parameters; ``address``: the same without ``since``. ``heard``: the
    revision of the last change that the page was notified of, ``None`` where it does not say.
    ``lasts``: for this many seconds an answer is used whatever has changed. ``rights``: the user's.
    """

    question: str
    address: str
    person: str
    scopes: tuple[Scope, ...]
    heard: int | None
    lasts: float = 0.0
    rights: str = ""


class RenderedFragment(msgspec.Struct, frozen=True):
    """A rendered answer: ``mark`` is the revision up to which it is complete, ``at`` its time."""

    mark: int
    at: float
    tag: str
    body: bytes
    content_type: str


class _Slot:
    """The last fragment for an address and a scope, and the lock under which it is rendered."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.lock = threading.Lock()
        self.fragment: RenderedFragment | None = None
        self.is_personal = False


class Looks:
    """The cached fragments, who requests which, and the time to render each. Thread-safe.

    Args:
        clock: monotonic seconds.
        mark: the watermark of the change log.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        mark: Callable[[], int] = changes.watermark,
    ) -> None:
        self._clock, self._mark = clock, mark
        self._lock = threading.Lock()
        self._slots: OrderedDict[tuple[Scope, str], _Slot] = OrderedDict()
        self._seconds: dict[str, float] = {}
        self._requests: dict[str, dict[str, float]] = {}

    def forget(self) -> None:
        """Drop all fragments."""
        with self._lock:
            self._slots.clear()

    # ------------------------------------------------------------------------- the pace of pages

    def note(self, person: str, address: str, seconds: float | None = None) -> None:
        """Record that a person's page requested an address, and the seconds to render it."""
        now = self._clock()
        with self._lock:
            addresses = self._requests.setdefault(person, {})
            addresses.pop(address, None)
            addresses[address] = now
            if len(addresses) > _MOST_ADDRESSES:
                del addresses[next(iter(addresses))]
            if seconds is not None:
                capped = min(seconds, _MOST_SECONDS)
                average = self._seconds.get(address, capped)
                self._seconds[address] = average + _NEWEST * (capped - average)

    def pause(self, person: str, pages: int, every: int, persons: int) -> float:
        """Return the seconds that a page of a person waits between two requests for a part.

        ``pages``: pages that this person has open; ``every``: pages open in total; ``persons``:
        people who have any open.
        """
        limit = self._clock() - _OPEN_SECONDS
        with self._lock:
            for times in self._requests.values():
                for address in [one for one, at in times.items() if at < limit]:
                    del times[address]
            self._requests = {name: times for name, times in self._requests.items() if times}
            looked = set().union(*self._requests.values())
            self._seconds = {one: cost for one, cost in self._seconds.items() if one in looked}
            whole = sum(self._seconds.values()) + every * _ASKING_SECONDS
            mine = sum(self._seconds.get(one, 0.0) for one in self._requests.get(person, ()))
        mine += pages * _ASKING_SECONDS
        return min(MOST_PAUSE, max(LEAST_PAUSE, min(whole, mine * persons) / SHARE))

    # ------------------------------------------------------------------------------ the answers

    def answer(self, look: Look, make: Make, pause: float, request: HttpRequest) -> HttpResponse:
        """Return the answer to a look: the cached one, or what ``make`` returns."""
        slot = self._slot(look)
        fragment = slot.fragment
        if fragment is not None and self._clock() - fragment.at > _OPEN_SECONDS:
            fragment = None  # nobody requested it for long
        if not self._serves(fragment, look, pause):
            # One thread renders. A thread that waits long gets the previous answer, if there is
            # one: its page learns that the answer is behind and asks once more, and the thread is
            # free.
            patience = _MOST_PATIENCE_SECONDS if fragment is None else _PATIENCE_SECONDS
            if slot.lock.acquire(timeout=patience):
                try:
                    fragment = slot.fragment
                    if not self._serves(fragment, look, pause):
                        return self._make(look, slot, make, pause, request)
                finally:
                    slot.lock.release()
            if fragment is None:
                return self._make(look, slot, make, pause, request)
        assert fragment is not None
        self._note(look, slot)
        return _response(fragment, request)

    def _note(self, look: Look, slot: _Slot, seconds: float | None = None) -> None:
        if not look.lasts:  # what is made every few seconds, and no more, is not counted
            self.note(look.person, " ".join((*slot.scope, look.address)), seconds)

    def _slot(self, look: Look) -> _Slot:
        """Return the answer's cache slot: that of the widest scope with no personal answers."""
        with self._lock:
            slot = _Slot(look.scopes[0])
            for scope in look.scopes:
                slot = self._slots.setdefault((scope, look.question), _Slot(scope))
                self._slots.move_to_end((scope, look.question))
                if not slot.is_personal:
                    break
            while len(self._slots) > _MOST_KEPT:
                self._slots.popitem(last=False)
            return slot

    def _serves(self, fragment: RenderedFragment | None, look: Look, pause: float) -> bool:
        if fragment is None:
            return False
        age = self._clock() - fragment.at
        return age < look.lasts or is_enough(look.heard, pause, fragment.mark, age)

    def _make(
        self, look: Look, slot: _Slot, make: Make, pause: float, request: HttpRequest
    ) -> HttpResponse:
        mark, begin = self._mark(), self._clock()
        request.META[ENOUGH] = partial(is_enough, look.heard, pause)
        response = make()
        now, meta = self._clock(), request.META
        if meta.get(PERSONAL) or meta.get("CSRF_COOKIE_NEEDS_UPDATE"):
            slot.is_personal, slot.fragment = True, None
            slot = self._slot(look)
        self._note(look, slot, now - begin)
        if response.status_code != 200 or response.streaming or response.cookies:
            return response
        if len(response.content) > _MOST_BYTES or meta.get(_RIGHTS_MOVED):
            return response
        body = response.content
        fragment = slot.fragment = RenderedFragment(
            mark=min(mark, meta.get(AS_OF, mark)),
            at=now,
            tag=tag_of(body),
            body=_packed(body),
            content_type=response.headers["Content-Type"],
        )
        return _response(fragment, request)


def is_enough(heard: int | None, pause: float, mark: int, age: float) -> bool:
    """Return whether a cached fragment is new enough for a page.

    ``mark``: the revision that the fragment shows; ``age``: seconds since it was rendered;
    ``heard``: the revision of the last change that the page was notified of; ``pause``: seconds
    that the page waits between two requests. While few pages are open, a page gets no fragment
    from before a change that it was notified of.
    """
    return heard is not None and age < pause and (mark >= heard or pause > LEAST_PAUSE)


def tag_of(body: bytes) -> str:
    """Return the tag of an answer; answers that differ only in ages have the same tag."""
    return hashlib.sha256(_TIME.sub(rb"\1", body)).hexdigest()[:16]


def _packed(body: bytes) -> bytes:
    # As in GZipMiddleware: the length must not reveal the content.
    return compress_string(body, max_random_bytes=100) if len(body) >= _SMALL else body


def _response(fragment: RenderedFragment, request: HttpRequest) -> HttpResponse:
    headers = {MARK: str(fragment.mark), TAG: fragment.tag}
    if request.headers.get(HAS) == fragment.tag:
        return HttpResponse(status=204, headers=headers)
    body = fragment.body
    if body.startswith(b"\x1f\x8b"):
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            headers["Content-Encoding"] = "gzip"
        else:
            body = gzip.decompress(body)
    return HttpResponse(body, content_type=fragment.content_type, headers=headers)


_looks = Looks()
memory.when_replaced(_looks.forget)
pause = _looks.pause


def heard(request: HttpRequest) -> int | None:
    """Return the revision of the last change that a page was notified of; ``None``: none given."""
    return natural(request.headers.get(HEARD, ""))


def of(request: HttpRequest, *, is_alike: bool, lasts: float) -> Look | None:
    """Return the look for a request, ``None`` if its page does not follow changes.

    ``is_alike``: the answer has only data of the cluster. Queries if the rights are not cached.
    """
    found = heard(request)
    if request.method != "GET" or "at" in request.GET or (found is None and not lasts):
        return None
    user = people.user_of(request.user)
    rights = authorizer.rights(user)
    scopes = [("rights", rights)] if is_alike else []
    scopes.append((request.session.session_key or "", f"{user.name} {rights}"))
    parameters = request.GET.copy()
    parameters.pop("since", None)
    address = f"{request.path}?{parameters.urlencode()}"
    return Look(request.get_full_path(), address, user.name, tuple(scopes), found, lasts, rights)


def serve(request: HttpRequest, look: Look, make: Make, pause_now: float) -> HttpResponse:
    """Return the fragment for a page's ``look``, from the cache or made now."""

    def make_and_compare() -> HttpResponse:
        response = make()
        # Roles may have changed while the request waited: render what the new ones allow.
        if authorizer.rights(people.user_of(request.user)) != look.rights:
            request.META[_RIGHTS_MOVED] = True
        return response

    return _looks.answer(look, make_and_compare, pause_now, request)
