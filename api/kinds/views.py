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
    """Makes viewsets without reference cycles, so that Python frees them at once.

    DRF makes a bound method of each action an attribute of the instance, so each request would
    leave its view, body and answer to the garbage collector.
    """

    action_map: dict[str, str]

    @classmethod
    def as_view(cls, actions: Any = None, **initkwargs: Any) -> Any:
        """Return a view that maps methods to ``actions``."""
        view = super().as_view(actions, **initkwargs)

        def served(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            self: Any = cls(**initkwargs)
            self.action_map, self.request = actions, request
            answer: HttpResponseBase = self.dispatch(request, *args, **kwargs)
            return answer

        return update_wrapper(served, view)  # with the attributes that DRF and others look for

    def handler(self, method: str) -> Handler | None:
        """Return the action of a method, None if there is none."""
        name = self.action_map.get(method)
        return None if name is None else getattr(self, name)


class DryRunAnswer(HttpResponseBase):
    """The answer to a dry run, made after its writes were rolled back."""

    def __init__(self, make: Callable[[], HttpResponseBase]) -> None:
        self.make = make


class StatusView(APIView):
    """A view that answers failures with a ``Status``, and checks the user's rights.

    Every write is a dry run if the request says so: it runs in a transaction that is rolled back,
    of which the handler need not know.

    The transaction must not wait for another process, since all followers of the change log would
    wait for it. So an advisor is asked before it (``inquire``), or after the rollback
    (``DryRunAnswer``).
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
        """Make the class's authenticators, permissions, parsers and the like."""
        super().__init_subclass__(**kwargs)
        cls._authenticators = [one() for one in cls.authentication_classes]
        cls._permissions = [one() for one in cls.permission_classes]
        cls._throttles = [one() for one in cls.throttle_classes]
        cls._parsers = [one() for one in cls.parser_classes]
        cls._renderers = [one() for one in cls.renderer_classes]
        cls._negotiation = cls.content_negotiation_class()
        cls._versioning = cls.versioning_class() if cls.versioning_class else None

    def get_authenticators(self) -> Any:
        """Return the class's authenticators."""
        return self._authenticators

    def get_permissions(self) -> Any:
        """Return the class's permissions."""
        return self._permissions

    def get_throttles(self) -> Any:
        """Return the class's throttles."""
        return self._throttles

    def get_parsers(self) -> Any:
        """Return the class's parsers."""
        return self._parsers

    def get_renderers(self) -> Any:
        """Return the class's renderers."""
        return self._renderers

    def get_content_negotiator(self) -> Any:
        """Return the class's content negotiator."""
        return self._negotiation

    # --------------------------------------------------------------------- the way of a request

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Return the finished answer, or a ``DeferredAnswer`` that the batch completes later."""
        self.args, self.kwargs = args, kwargs
        wrapped = self.request = self.initialize_request(request, *args, **kwargs)
        return self.complete(wrapped, lambda: self.carry_out(wrapped, *args, **kwargs))

    def complete(self, request: Request, make: Callable[[], HttpResponseBase]) -> HttpResponseBase:
        """Return the finished answer from ``make``, or for the error that it raises."""
        try:
            response = make()
        except Exception as error:  # noqa: BLE001  # every failure becomes a Status
            response = self.handle_exception(error)
            failures.forget_frames(error)
        return self.finalize_response(request, response)

    def initialize_request(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """Wrap Django's request in the ``Request`` that handlers get."""
        return Request(
            request,
            self.get_parsers(),
            self.get_authenticators(),
            self._negotiation,
        )

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:  # type: ignore[override]
        """Check the request, rights first: without them the answer shows nothing else."""
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
        """Set the user of the request."""
        user = request.user
        if user is None:
            raise Unauthorized("Unauthorized")
        self.user = user

    def wants(self, request: Request) -> Iterable[Attributes]:
        """Return all rights that the request needs."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it is about")

    def check_form(self, request: Request) -> None:
        """Check the parameters for the form of the answer, before anything is done.

        Raises:
            BadRequest: a parameter has an unknown value.
        """
        form = request.accepted_renderer.format
        if form == negotiation.TABLE:
            replies.include_object(request.query_params.get("includeObject"))
        elif form == negotiation.PLAIN:
            wire.boolean(request.query_params.get("pretty"), "pretty")

    def carry_out(self, request: Request, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Check the request and run its handler for the user; roll back the writes of a dry run."""
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
        """Do nothing: a hook for questions to advisors before a handler's transaction begins."""

    def handler(self, method: str) -> Handler | None:
        """Return the handler of a method, None if there is none."""
        found: Handler | None = getattr(self, method, None)
        return found if method in self.http_method_names else None

    def is_dry_run(self, request: Request) -> bool:
        """Return whether the request is a dry run.

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
        """Return the answer, rendered in the form that the client accepts."""
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
        """Do nothing: a hook that gets each finished answer.

        Called once for each request, last, on the thread that answered it; in a batch, after the
        batch. ``request.user`` may be missing if authentication failed.
        """

    def _written(self, request: Request, response: Response, renderer: Any = None) -> Response:
        """Return an answer with its rendered body, or the error that the renderer raised."""
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
        """Return the client's next accepted renderer, if ``renderer`` cannot render the answer."""
        found = list(negotiation.fitting(request.META.get("HTTP_ACCEPT", ""), self._renderers))
        place = found.index(renderer) if renderer in found else len(found)
        return next(iter(found[place + 1 :]), None)

    def _for_failures(self, request: Request) -> Any:
        """Return the renderer for a failure, whatever the form of a success would be."""
        if is_browser(request._request):
            return renderers.PAGE
        form = negotiation.for_failures(request.META.get("HTTP_ACCEPT", ""))
        for renderer in self._renderers:
            if renderer.format == form:
                return renderer
        return renderers.PLAIN
