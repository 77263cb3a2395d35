"""Requests that survive restarts: what is repeated, how lists and watches go on.

What is safe to repeat is repeated while ``patience`` lasts, after growing random pauses or those of
``Retry-After``: reads, questions, deletions and changes that name a version always; creations where
the answer to a second one shows whether the first was done. Other requests are repeated only if
they cannot have been done: the connection was refused, or the answer is 429.
"""

import asyncio
import random
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final, Self, TypeVar
from urllib.parse import quote

import httpx
import msgspec

import stowage
from stowage.client.connections import Connection

Manifest = dict[str, Any]
T = TypeVar("T")

SUBMISSION: Final = "stowage.dev/submission"
"""Label of pods and annotation of other objects that a client created: a repeated creation finds by
it that the first one succeeded."""
_AGAIN: Final = frozenset({408, 429, 500, 502, 503, 504})
_GONE: Final = 410
_CONFLICT: Final = 409
NOT_FOUND: Final = 404
_FIRST_PAUSE, _LONGEST_PAUSE, _LONGEST_ASKED = 0.05, 2.0, 10.0
_WATCH_SECONDS: Final = 50
_SILENCE_SECONDS: Final = 30.0
"""A request without an answer for so long is repeated; watches have their own limit."""
_PAGE: Final = 500
_CERTIFICATE: Final = "CERTIFICATE_VERIFY_FAILED"
"""In OpenSSL's message about a certificate that will not become a right one by waiting."""


class APIError(Exception):
    """The server refused: ``code`` (HTTP), ``reason`` (Kubernetes'), ``message``, ``details``."""

    def __init__(self, code: int, reason: str, message: str, details: Manifest) -> None:
        super().__init__(message or f"{code} {reason}")
        self.code, self.reason, self.message, self.details = code, reason, message, details
        self.retry_after: float | None = None


class Unreachable(Exception):
    """No server answered for as long as the client is patient."""


class Event(msgspec.Struct, frozen=True):
    """One change: ``type`` is ADDED, MODIFIED or DELETED; ``object`` is the manifest."""

    type: str
    object: Manifest


class _Meta(msgspec.Struct):
    name: str | None = None
    namespace: str | None = None
    labels: dict[str, Any] | None = None
    annotations: dict[str, Any] | None = None


class _Line(msgspec.Struct):
    type: str
    object: msgspec.Raw


class Exchange:
    """Sends requests to one server."""

    def __init__(
        self,
        connection: Connection | None = None,
        *,
        patience: float = 120.0,
        rng: random.Random | None = None,
    ) -> None:
        """Prepare the connection; nothing is sent yet.

        Args:
            connection: where the server is; found by ``Connection.find`` if it is not given.
            patience: for so many seconds a request is repeated until an answer decides it.
            rng: for pauses and names.
        """
        self.connection = connection or Connection.find()
        self._patience = patience
        self.rng = rng or random.Random(secrets.randbits(64))  # noqa: S311  # pauses and names
        self._http = httpx.AsyncClient(
            base_url=self.connection.server,
            verify=self.connection.tls(),
            timeout=httpx.Timeout(_SILENCE_SECONDS, connect=5.0),
            headers={"User-Agent": f"stowage/{stowage.__version__}"},
            trust_env=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def request(
        self,
        /,
        method: str,
        path: str,
        *,
        body: object = None,
        repeats: bool | None = None,
        content_type: str = "application/json",
        **params: Any,
    ) -> Any:
        """Return what the server answers, decoded; text if it is no JSON.

        Args:
            method: GET, POST, PUT, PATCH or DELETE.
            path: from the root, such as ``/api/v1/nodes``; may have a query.
            body: is sent as JSON.
            repeats: whether it may be sent again after it may have been done; by default GETs are.
            content_type: of the body.
            params: of the query, beside those in ``path``.

        Raises:
            APIError: the server says no.
            Unreachable: nobody answered.
        """
        answer = await self._repeated(
            lambda: self._once(method, path, body, content_type, params),
            repeats=method == "GET" if repeats is None else repeats,
        )
        return _decoded(answer)

    async def _once(
        self, method: str, path: str, body: object, content_type: str, params: Mapping[str, object]
    ) -> httpx.Response:
        answer = await self._http.request(
            method,
            _url(path, params),
            content=None if body is None else msgspec.json.encode(body),
            headers={
                **self.connection.authorization(),
                "Accept": "application/json",
                **({} if body is None else {"Content-Type": content_type}),
            },
        )
        if answer.is_error:
            raise _error(answer.status_code, answer.content, answer.headers)
        return answer

    async def _repeated(self, attempt: Callable[[], Awaitable[T]], *, repeats: bool) -> T:
        until = time.monotonic() + self._patience
        number = 0
        while True:
            try:
                return await attempt()
            except httpx.TransportError as error:
                if not (repeats or isinstance(error, httpx.ConnectError)):
                    raise Unreachable(
                        f"{self.connection.server} closed the connection"
                        f" ({_error_text(error)}); it is"
                        " not known whether the request was carried out"
                    ) from error
                if time.monotonic() >= until or _CERTIFICATE in str(error):
                    raise Unreachable(f"{self.connection.server}: {_error_text(error)}") from error
                asked = None
            except APIError as error:
                again = error.code in _AGAIN if repeats else error.code == 429
                if not again or time.monotonic() >= until:
                    raise
                asked = error.retry_after
            await self.pause(number, asked)
            number += 1

    async def pause(self, number: int, asked: float | None = None) -> None:
        """Wait before attempt ``number + 1``: longer each time, at random, or as was asked."""
        longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0**number)
        await asyncio.sleep(
            min(asked, _LONGEST_ASKED) if asked else longest * (0.5 + self.rng.random() / 2)
        )

    async def get(self, /, path: str, **params: Any) -> Any:
        """Return what is at a path."""
        return await self.request("GET", path, **params)

    async def ask(self, /, path: str, question: object, **params: Any) -> Any:
        """Return the answer to a question that is sent as a body and changes nothing."""
        return await self.request("POST", path, body=question, repeats=True, **params)

    async def list_all(self, /, path: str, **params: Any) -> tuple[list[Manifest], str]:
        """Return all objects and the list's resourceVersion; pages that expired begin anew."""
        while True:
            items: list[Manifest] = []
            token = ""
            try:
                while True:
                    page = await self.get(path, **{"limit": _PAGE, "continue": token, **params})
                    items += page.get("items") or ()
                    token = page["metadata"].get("continue") or ""
                    if not token:
                        return items, page["metadata"]["resourceVersion"]
            except APIError as error:
                if error.code != _GONE:
                    raise

    async def watch(
        self,
        /,
        path: str,
        *,
        resource_version: str = "",
        known: dict[tuple[str, str], str] | None = None,
        **params: Any,
    ) -> AsyncIterator[Event]:
        """Yield changes without an end, and without a gap: a connection that ends is resumed.

        Without ``resource_version`` it begins with what is there, as ADDED. Where the server no
        longer knows the version it is listed anew, and what differs is told.

        ``known``: resourceVersions by namespace and name, kept up to date here. What the caller
        adds counts as known: it is told as DELETED if the next list does not have it.
        """
        known = {} if known is None else known
        version, failures = resource_version, 0
        while True:
            if not version:
                before = dict(known)  # what is added while the list is made may not be in it
                items, version = await self.list_all(path, **params)
                for event in _differences(before, items):
                    yield event
                for place in before:
                    known.pop(place, None)
                known.update((place_of(one), one["metadata"]["resourceVersion"]) for one in items)
            try:
                async for kind, raw in self._stream(path, version, params):
                    failures = 0
                    if kind == "ERROR":
                        status = msgspec.json.decode(raw)
                        raise _status_error(int(status.get("code") or 500), status)
                    manifest = msgspec.json.decode(raw)
                    version = manifest["metadata"]["resourceVersion"]
                    if kind == "BOOKMARK":
                        continue
                    place = place_of(manifest)
                    if kind == "DELETED":
                        known.pop(place, None)
                    else:
                        known[place] = version
                    yield Event(kind, manifest)
            except APIError as error:
                if error.code == _GONE:
                    version = ""
                elif error.code not in _AGAIN:
                    raise
                else:
                    await self.pause(failures, error.retry_after)
                    failures += 1
            except httpx.TransportError:
                await self.pause(failures)
                failures += 1

    async def _stream(
        self, path: str, version: str, params: Mapping[str, object]
    ) -> AsyncIterator[tuple[str, bytes]]:
        """Yield type and object of each line of one watch until the connection ends."""
        query = {
            **params,
            "watch": True,
            "resourceVersion": version,
            "allowWatchBookmarks": True,
            "timeoutSeconds": _WATCH_SECONDS,
        }
        decode = msgspec.json.Decoder(_Line).decode
        async with self._http.stream(
            "GET", _url(path, query), headers=self.connection.authorization(),
            timeout=httpx.Timeout(_WATCH_SECONDS + 10.0, connect=5.0),
        ) as answer:  # fmt: skip
            if answer.is_error:
                raise _error(answer.status_code, await answer.aread(), answer.headers)
            rest = b""
            async for piece in answer.aiter_bytes():
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    if line:
                        found = decode(line)
                        yield found.type, bytes(found.object)

    async def create(self, /, path: str, manifest: Manifest, **params: Any) -> Manifest:
        """Create an object at its collection's path; return it as it is stored.

        It gets a name from its ``generateName`` here, and the annotation ``SUBMISSION``, so that
        a creation whose answer was lost may be repeated and is found done.

        Raises:
            APIError: also 409 where another object has the name.
            ValueError: as ``metadata``.
        """
        sign = f"{self.rng.getrandbits(64):016x}"
        meta = named(manifest, self.rng)
        meta["annotations"] = {**(meta.get("annotations") or {}), SUBMISSION: sign}
        try:
            made = await self.request(
                "POST", path, body={**manifest, "metadata": meta}, repeats=True, **params
            )
        except APIError as error:
            if error.code != _CONFLICT:
                raise
            try:
                made = await self.get(f"{path}/{quote(meta['name'], safe='')}")
            except APIError:
                raise error from None
            if (made["metadata"].get("annotations") or {}).get(SUBMISSION) != sign:
                raise
        assert isinstance(made, dict)
        return made

    async def change(
        self, /, path: str, edit: Callable[[Manifest], Manifest | None], **params: Any
    ) -> Manifest:
        """Read an object, have ``edit`` change it, write it; again when it was changed meanwhile.

        ``edit`` may change what it gets or return another manifest.
        """
        number = 0
        while True:
            found = await self.get(path)
            wanted = edit(found) or found
            try:
                changed = await self.request("PUT", path, body=wanted, repeats=True, **params)
            except APIError as error:
                if error.code != _CONFLICT:
                    raise
                await self.pause(number)
                number += 1
            else:
                assert isinstance(changed, dict)
                return changed

    async def patch(self, /, path: str, patch: object, **params: Any) -> Any:
        """Send a merge patch, which says the same when it is repeated."""
        kind = "application/merge-patch+json"
        return await self.request(
            "PATCH", path, body=patch, content_type=kind, repeats=True, **params
        )

    async def delete(self, /, path: str, *, uid: str = "", **params: Any) -> None:
        """Delete an object, with ``uid`` no namesake; one that is gone already is no error."""
        body = {"preconditions": {"uid": uid}} if uid else None
        try:
            await self.request("DELETE", path, body=body, repeats=True, **params)
        except APIError as error:
            if error.code != NOT_FOUND:
                raise


def metadata(manifest: Manifest) -> Manifest:
    """Return a copy of the metadata, empty if there is none.

    Raises:
        ValueError: the type of a field that the client reads is wrong.
    """
    meta = manifest.get("metadata") or {}
    try:
        msgspec.convert(meta, _Meta)
    except msgspec.ValidationError as error:
        text = str(error).replace("`$", "`metadata").replace("Object", "object")
        raise ValueError(text if "metadata" in text else f"metadata: {text}") from error
    return dict(meta)


def named(manifest: Manifest, rng: random.Random) -> Manifest:
    """Return a copy of the metadata with a name, made of ``generateName`` where there is none."""
    meta = metadata(manifest)
    if not meta.get("name"):
        # Kubernetes' own letters (apimachinery, util/rand), more of them: nobody tries again.
        letters = "bcdfghjklmnpqrstvwxz2456789"
        meta["name"] = str(meta.get("generateName") or "pod-") + "".join(
            rng.choice(letters) for _ in range(10)
        )
    return meta


def _differences(known: Mapping[tuple[str, str], str], items: list[Manifest]) -> list[Event]:
    """Return the events that lead from the known objects to those of a new list."""
    found = {place_of(one) for one in items}
    events = [
        Event("DELETED", {"metadata": {"namespace": place[0], "name": place[1]}})
        for place in known
        if place not in found
    ]
    events += [
        Event("MODIFIED" if place_of(one) in known else "ADDED", one)
        for one in items
        if known.get(place_of(one)) != one["metadata"]["resourceVersion"]
    ]
    return events


def place_of(manifest: Manifest) -> tuple[str, str]:
    """Return namespace and name; the namespace is empty if the object has none."""
    meta = manifest["metadata"]
    return meta.get("namespace") or "", meta["name"]


def _url(path: str, params: Mapping[str, object]) -> httpx.URL:
    """Return the path with these parameters, beside those that it has. Empty ones are left out."""
    given = {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in params.items()
        if value not in (None, "")
    }
    return httpx.URL(path).copy_merge_params(given)


def _decoded(answer: httpx.Response) -> Any:
    if "json" not in answer.headers.get("Content-Type", ""):
        return answer.text
    return msgspec.json.decode(answer.content) if answer.content else None


def _error_text(error: httpx.TransportError) -> str:
    return str(error) or type(error).__name__


def _error(code: int, content: bytes, headers: httpx.Headers) -> APIError:
    try:
        status = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        status = {"message": content[:200].decode(errors="replace")}
    error = _status_error(code, status if isinstance(status, dict) else {})
    try:
        error.retry_after = float(headers.get("Retry-After", ""))
    except ValueError:
        error.retry_after = None
    return error


def _status_error(code: int, status: Manifest) -> APIError:
    return APIError(
        code,
        str(status.get("reason") or ""),
        str(status.get("message") or ""),
        status.get("details") or {},
    )
