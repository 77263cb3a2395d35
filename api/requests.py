"""DRF's request, without what costs time and says nothing here.

Bodies are read by a parser whatever their length: an empty one is no JSON, and is refused as such.
Parameters of a request without any are one empty value that all such requests share.
"""

from collections.abc import Sequence
from io import BytesIO
from typing import Any, Final

from django.core.handlers.wsgi import WSGIRequest
from django.http import HttpRequest, QueryDict
from django.utils.datastructures import MultiValueDict
from rest_framework import request as framework
from rest_framework.authentication import BaseAuthentication
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser

from clusterstate.admission.request import User

_NO_PARAMETERS: Final = QueryDict("")
_NO_FILES: Final[MultiValueDict[str, Any]] = MultiValueDict()


class WholeRequest(WSGIRequest):
    """Django's request where the path is decoded and the body is read already."""

    def __init__(self, environ: dict[str, Any], path: str, body: bytes) -> None:
        # The attributes that Django's constructor sets.
        own: Any = self  # typed in the stubs as always there
        own.environ = self.META = environ
        self.path_info = environ["PATH_INFO"] = path or "/"
        self.path = f"/{self.path_info.replace('/', '', 1)}"
        self.method = environ["REQUEST_METHOD"].upper()
        own._set_content_type_params(environ)
        own._body, own._stream, own._read_started = body, BytesIO(body), False
        self.resolver_match = None


class Request(framework.Request):
    """One request to a view."""

    META: dict[str, Any]
    method: str
    version: str
    _stream: Any
    _files: Any

    def __init__(
        self,
        request: HttpRequest,
        parsers: Sequence[BaseParser],
        authenticators: Sequence[BaseAuthentication],
        negotiator: BaseContentNegotiation,
    ) -> None:
        # The attributes that DRF's own constructor sets, and the two that are asked for most.
        self._request = request
        self.META = request.META
        self.method = request.method or "GET"
        self.parsers = parsers
        self.authenticators = authenticators
        self.negotiator = negotiator
        self.parser_context = {}  # without this request, which would not be freed in time
        self._data = self._files = self._full_data = framework.Empty
        self._content_type = self._stream = framework.Empty
        self._parameters: QueryDict | None = (
            None if request.META["QUERY_STRING"] else _NO_PARAMETERS
        )

    @property
    def body(self) -> bytes:
        """The body as it came."""
        return self._request.body

    @property
    def query_params(self) -> Any:
        """The parameters of the URL."""
        found = self._parameters
        if found is None:
            found = self._parameters = self._request.GET
        return found

    @query_params.setter
    def query_params(self, value: QueryDict) -> None:
        self._parameters = value

    @property  # type: ignore[override]  # not one of Django's
    def user(self) -> User:
        """The user, or the one that the user impersonates."""
        if "_user" not in self.__dict__:
            self._authenticate()  # type: ignore[attr-defined]  # not in the stubs
        found: User = self._user
        return found

    @user.setter
    def user(self, value: Any) -> None:
        self._user = value

    @property
    def data(self) -> Any:
        """The value in the body, read at the first call.

        Raises:
            StatusError: no parser reads such a body, or it does not decode.
        """
        if self._full_data is framework.Empty:
            self._load_data_and_files()
        return self._full_data

    def _load_data_and_files(self) -> None:
        """Read the body with the parser that its type asks for."""
        negotiator: Any = self.negotiator
        parser = negotiator.select_parser(self, self.parsers)
        body = BytesIO(self._request.body)
        found = parser.parse(body, self.content_type)
        self._data = self._full_data = found
        self._files = _NO_FILES
