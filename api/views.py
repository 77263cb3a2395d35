"""What all views of the API share: authentication, dry runs, failures and the form of answers."""

from collections.abc import Callable
from functools import wraps
from typing import Any, cast

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from rest_framework.request import Request
from rest_framework.views import APIView

from api import auth, batches, errors, negotiation, options, protobuf, room
from clusterstate.actions import transactions
from clusterstate.admission.request import User


def _decided(handler: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Return a write handler that writes nothing where the request is a dry run."""

    @wraps(handler)
    def decided(self: "StatusView", request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        if request.method != "DELETE":
            room.require()
        if not self.is_dry_run(request):
            return handler(self, request, *args, **kwargs)
        request.META.pop(batches.KEY, None)  # a batch commits for all its requests
        with transactions.rehearsal():
            return handler(self, request, *args, **kwargs)

    return decided


class StatusView(APIView):
    """A view whose every failure is a ``Status`` and whose every caller has a token.

    Every write is a dry run if the request says so, whatever the handler does: it runs in a
    transaction that is rolled back. No handler has to know.
    """

    authentication_classes = [auth.BearerAuthentication]
    permission_classes = []
    throttle_classes = []
    parser_classes = []
    renderer_classes = []
    content_negotiation_class = negotiation.Negotiation

    user: User

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Put the decision about dry runs before each write handler of the class."""
        super().__init_subclass__(**kwargs)
        for method in options.OPTIONS:
            if method.lower() in cls.__dict__:
                setattr(cls, method.lower(), _decided(cls.__dict__[method.lower()]))

    def is_dry_run(self, request: HttpRequest) -> bool:
        """Return whether the request is to change nothing.

        Raises:
            StatusError: it says so in a word that is not known.
        """
        return options.dry_run(request.GET.getlist("dryRun"), options.OPTIONS[request.method or ""])

    @property
    def default_response_headers(self) -> dict[str, str]:
        """Return none: answers set their own."""
        return {}

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Authenticate; what the user may do is asked when it is known what they want."""
        options.check_timeout(request.query_params)
        self.user = cast("User", request.user)

    def handle_exception(  # type: ignore[override]  # DRF takes any HttpResponse
        self, exc: Exception
    ) -> HttpResponse:
        """Return any failure as a ``Status``."""
        return errors.respond(exc)

    def finalize_response(  # type: ignore[override]  # answers are Django's own, made by the views
        self, request: HttpRequest, response: HttpResponseBase, *args: Any, **kwargs: Any
    ) -> HttpResponseBase:
        """Return the answer in the form that the client asks for first, JSON or protobuf."""
        accept = request.META.get("HTTP_ACCEPT", "")
        if isinstance(response, batches.Deferred):
            response.accept = accept
            return response
        return protobuf.render(accept, cast("HttpResponse", response))
