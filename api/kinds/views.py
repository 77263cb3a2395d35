"""Base of all views: the steps of a request, as the package docstring draws them."""

from collections.abc import Callable, Iterable, Sequence
from functools import update_wrapper
from typing import Any, ClassVar, cast

import structlog
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse
from rest_framework.response import Response
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSetMixin

from api.forms import errors, failures, negotiation, options, parsers, renderers, replies, wire
from api.requests import Request
from api.server import batches, room
from clusterstate.access.rules import Attributes
from clusterstate.actions.writing import transactions
from clusterstate.admission.request import User
from clusterstate.middleware import is_browser
from clusterstate.objects.values.actor import acting, process_owner
from clusterstate.objects.values.errors import Unauthorized
from scheduling.answers import advisor

logger = structlog.get_logger(__name__)

Handler = Callable[..., HttpResponseBase]


class ActionsMixin(ViewSetMixin):
    """Viewsets that are freed at once: DRF's own keep references to themselves.

    It makes a bound method of each action an attribute of the instance, so that each request would
    leave its view, body and answer to the garbage collector.
    """

    action_map: dict[str, str]

    @classmethod
    def as_view(cls, actions: Any = None, **initkwargs: Any) -> Any:
        """Return a view whose methods are served by ``actions``."""
        view = super().as_view(actions, **initkwargs)

        def served(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            self: Any = cls(**initkwargs)
            self.action_map, self.request = actions, request
            answer: HttpResponseBase = self.dispatch(request, *args, **kwargs)
            return answer

        return update_wrapper(served, view)  # with the attributes that DRF and others look for

    def handler(self, method: str) -> Handler | None:
        """Return the action that answers a method, None where nothing does."""
        name = self.action_map.get(method)
        return None if name is None else getattr(self, name)


class DryRunAnswer(HttpResponseBase):
    """The answer to a dry run that is made when what was written has been rolled back."""

    def __init__(self, make: Callable[[], HttpResponseBase]) -> None:
        self.make = make


class StatusView(APIView):
    """A view whose every failure is a ``Status`` and whose every caller is known and may do that.

    Every write is a dry run if the request says so, whatever the handler does: it runs in a
    transaction that is rolled back. No handler has to know.

    Nobody waits for another process in that transaction, which all followers of the change log
    would wait for: what an advisor has to say is asked before (``inquire``), or after what was
    written was rolled back (``DryRunAnswer``).
    """

    http_method_names = ["get", "post", "put", "patch", "delete"]

    user: User
    format_kwarg = None
    request: Request

    # The judges are the same for all requests to a class of views: they keep nothing.
    _authenticators: ClassVar[Sequence[Any]]
    _permissions: ClassVar[Sequence[Any]]
    _throttles: ClassVar[Sequence[Any]]
    _parsers: ClassVar[Sequence[Any]]
    _renderers: ClassVar[Sequence[Any]]
    _negotiation: ClassVar[Any]
    _versioning: ClassVar[Any]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Make the judges of the class."""
        super().__init_subclass__(**kwargs)
        cls._authenticators = [one() for one in cls.authentication_classes]
        cls._permissions = [one() for one in cls.permission_classes]
        cls._throttles = [one() for one in cls.throttle_classes]
        cls._parsers = [one() for one in cls.parser_classes]
        cls._renderers = [one() for one in cls.renderer_classes]
        cls._negotiation = cls.content_negotiation_class()
        cls._versioning = cls.versioning_class() if cls.versioning_class else None

    def get_authenticators(self) -> Any:
        """Return the authenticators that were made once for the class."""
        return self._authenticators

    def get_permissions(self) -> Any:
        """Return the permissions that were made once for the class."""
        return self._permissions

    def get_throttles(self) -> Any:
        """Return the throttles that were made once for the class."""
        return self._throttles

    def get_parsers(self) -> Any:
        """Return the parsers that were made once for the class."""
        return self._parsers

    def get_renderers(self) -> Any:
        """Return the renderers that were made once for the class."""
        return self._renderers

    def get_content_negotiator(self) -> Any:
        """Return the content negotiator that were made once for the class."""
        return self._negotiation

    # --------------------------------------------------------------------- the way of a request

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Return the finished answer, or a ``DeferredAnswer`` that the request's batch fills in."""
        self.args, self.kwargs = args, kwargs
        wrapped = self.request = self.initialize_request(request, *args, **kwargs)
        return self.complete(wrapped, lambda: self.carry_out(wrapped, *args, **kwargs))

    def complete(self, request: Request, make: Callable[[], HttpResponseBase]) -> HttpResponseBase:
        """Return the finished answer that ``make`` returns, or the failure that it raises."""
        try:
            response = make()
        except Exception as error:  # noqa: BLE001  # every failure becomes a Status
            response = self.handle_exception(error)
            failures.forget_frames(error)
        return self.finalize_response(request, response)

    def initialize_request(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """Return the request as handlers see it."""
        return Request(
            request,
            self.get_parsers(),
            self.get_authenticators(),
            self._negotiation,
        )

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:  # type: ignore[override]
        """Judge the request, rights first: without them the answer says nothing else."""
        query = request.query_params
        if query:
            options.check_timeout(query)
        self.perform_authentication(request)
        if self._versioning is not None:
            request.version = self._versioning.determine_version(request, *args, **kwargs)
            request.versioning_scheme = self._versioning
        self.check_permissions(request)
        if self._throttles:
            self.check_throttles(request)
        renderer, request.accepted_media_type = self._negotiation.select_renderer(
            request, self._renderers
        )
        request.accepted_renderer = renderer
        if query:
            self.check_form(request)

    def perform_authentication(self, request: Any) -> None:
        """Find out whose request this is."""
        user = request.user
        if user is None:
            raise Unauthorized("Unauthorized")
        self.user = user

    def wants(self, request: Request) -> Iterable[Attributes]:
        """Return what the sender has to be allowed to do, all of it."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it is about")

    def check_form(self, request: Request) -> None:
        """Check the parameters of the form of the answer, before anything is done.

        Raises:
            BadRequest: a parameter has an unknown value.
        """
        form = request.accepted_renderer.format
        if form == negotiation.TABLE:
            replies.include_object(request.query_params.get("includeObject"))
        elif form == negotiation.PLAIN:
            wire.boolean(request.query_params.get("pretty"), "pretty")

    def carry_out(self, request: Request, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Judge the request and run its handler for the user; roll back what a dry run wrote."""
        self.initial(request, *args, **kwargs)
        advisor.asking(self.user.name)
        method = request.method
        handler = self.handler(method.lower())
        if handler is None:
            raise errors.MethodNotAllowed(errors.WRONG_METHOD)
        if method == "GET":
            return handler(request, *args, **kwargs)
        if method != "DELETE":
            room.require()
            self.check_options(request)
        with acting(self.user.actor or process_owner()):
            only_tries = self.is_dry_run(request)
            self.inquire(request, *args, **kwargs)
            if not only_tries:
                return handler(request, *args, **kwargs)
            request.META.pop(batches.KEY, None)  # a batch commits for all its requests
            with transactions.rehearsal():
                answer = handler(request, *args, **kwargs)
        return answer.make() if isinstance(answer, DryRunAnswer) else answer

    def inquire(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Do nothing: the hook for what a handler that writes must ask others before it begins."""

    def handler(self, method: str) -> Handler | None:
        """Return what answers a method, None where nothing does."""
        found: Handler | None = getattr(self, method, None)
        return found if method in self.http_method_names else None

    def is_dry_run(self, request: Request) -> bool:
        """Return whether the request is to change nothing.

        Raises:
            StatusError: a parameter has an unknown value.
        """
        query = request.query_params
        return bool(query) and options.dry_run(
            query.getlist("dryRun"), options.OPTIONS[request.method]
        )

    def check_options(self, request: Request) -> None:
        """Check the parameters of a POST, PUT or PATCH.

        Raises:
            StatusError: a parameter has an unknown value.
        """
        query, method = request.query_params, request.method
        applies = method == "PATCH" and (
            parsers.media_type(request.META.get("CONTENT_TYPE")) == parsers.APPLY
        )
        if query or applies:
            options.check_write(query, method, applies=applies)

    def handle_exception(self, exc: Exception) -> Response:
        """Return any failure as a ``Status``."""
        answer: Response = self.settings.EXCEPTION_HANDLER(exc, {"view": self})
        return answer

    def finalize_response(  # type: ignore[override]  # a batch's answers come later
        self, request: Request, response: HttpResponseBase, *args: Any, **kwargs: Any
    ) -> HttpResponseBase:
        """Return the answer, written in the form that the client asks for."""
        if isinstance(response, batches.DeferredAnswer):
            response.view, response.request = self, request
            return response
        if response.status_code == 401 and is_browser(request._request):
            response = redirect_to_login(request.get_full_path(), reverse("console:sign-in"))
        elif isinstance(response, Response):
            response = self._written(request, response)
        try:
            self.answered(request, response)
        except Exception:
            logger.exception("answer_not_noted")  # what was done is done
        return response

    def answered(self, request: Request, response: HttpResponseBase) -> None:
        """Do nothing: the hook for code that looks at each finished answer.

        Called once for each request, behind everything, on the thread that answered it; in a batch
        when the batch was carried out. ``request.user`` may be missing: the sender was not known.
        """

    def _written(self, request: Request, response: Response, renderer: Any = None) -> Response:
        """Return an answer with its body, or the failure that writing the body raised."""
        renderer = renderer or getattr(request, "accepted_renderer", None)
        if renderer is None or response.exception:
            renderer = self._for_failures(request)
        response.accepted_renderer = renderer
        response.accepted_media_type = renderer.media_type
        context = {"view": self, "request": request}
        response.renderer_context = context  # type: ignore[attr-defined]  # as DRF does
        try:
            response.render()
            context.clear()  # it holds the answer itself now, which would not be freed in time
            return response
        except Exception as error:  # noqa: BLE001  # becomes a Status
            if response.exception:  # no message for it in protobuf; its sentence is worth more
                response.accepted_renderer = renderers.PLAIN
                return cast("Response", response.render())
            if isinstance(error, errors.NotAcceptable):  # no message for it in protobuf
                other = self._after(request, renderer)
                if other is not None:
                    return self._written(request, response, other)
            return self._written(request, self.handle_exception(error))

    def _after(self, request: Request, renderer: Any) -> Any:
        """Return the renderer that a client takes next where one can write no such answer."""
        found = list(negotiation.fitting(request.META.get("HTTP_ACCEPT", ""), self._renderers))
        place = found.index(renderer) if renderer in found else len(found)
        return next(iter(found[place + 1 :]), None)

    def _for_failures(self, request: Request) -> Any:
        """Return the renderer for a failure, in whatever form the success would have come."""
        if is_browser(request._request):
            return renderers.PAGE
        form = negotiation.for_failures(request.META.get("HTTP_ACCEPT", ""))
        for renderer in self._renderers:
            if renderer.format == form:
                return renderer
        return renderers.PLAIN
