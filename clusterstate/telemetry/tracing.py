"""Traces of pods for OpenTelemetry, from the request that creates a pod until it is bound.

::

    POST pods                      the request, a child of the span in its `traceparent` header
      create                       admission and the transaction that writes the pod
      queue                        until the scheduler took the pod out of the queue
      scheduling cycle             deciding, with the pods of the same batch
      bind                         writing the binding

Off unless STOWAGE_TRACES is set: then nothing is imported, and a request costs one look at a flag.
The pod has its trace in the annotation ``TRACE`` (as W3C trace context). The scheduler reads it
only after a pod is bound, when it is idle. The OTEL_* variables say where spans go (OTLP over
HTTP), and OTEL_TRACES_SAMPLER which traces are sent.
"""

from typing import TYPE_CHECKING, Any, Final

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from clusterstate.objects.rules.own_annotations import TRACE
from clusterstate.objects.values.meta import Manifest
from clusterstate.telemetry import blanking

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, Tracer

KEY: Final = "stowage.span"
"""Key of a request's span in its scope and environment."""

_SECOND: Final = 1_000_000_000


class _Tracing:
    """The state of tracing in this process after ``start``."""

    provider: "TracerProvider | None" = None
    tracer: "Tracer | None" = None


_here = _Tracing()


def is_on() -> bool:
    """Return whether this process traces."""
    return _here.tracer is not None


def start() -> None:
    """Start tracing in this process, if the settings say so; a second call does nothing.

    Raises:
        ImproperlyConfigured: the packages are not installed.
    """
    if not settings.TRACES or _here.tracer is not None:
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise ImproperlyConfigured(
            "STOWAGE_TRACES needs OpenTelemetry:"
            " .venv/bin/uv pip install -p .venv/bin/python --require-hashes"
            " -r requirements-otel.txt"
        ) from error
    named = Resource({"service.name": "stowage", "stowage.process": settings.PROCESS})
    provider = TracerProvider(resource=named.merge(OTELResourceDetector().detect()))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    _here.provider, _here.tracer = provider, provider.get_tracer("stowage")


def stop() -> None:
    """Send all finished spans, and stop tracing."""
    provider, _here.provider, _here.tracer = _here.provider, None, None
    if provider is not None:
        provider.shutdown()


def _parent(traceparent: str) -> Any:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract({"traceparent": traceparent})


def request(path: str, traceparent: str) -> "Span | None":
    """Return the span of a request that creates a pod, None if it is not traced."""
    if _here.tracer is None:
        return None
    from opentelemetry.trace import SpanKind

    span = _here.tracer.start_span(
        "POST pods",
        context=_parent(traceparent),
        kind=SpanKind.SERVER,
        attributes={"http.request.method": "POST", "url.path": blanking.text(path)},
    )
    return span if span.is_recording() else None


def answered(span: "Span", code: int) -> None:
    """End the span of a request."""
    span.set_attribute("http.response.status_code", code)
    span.end()


def create(span: "Span", manifest: Manifest) -> "Span | None":
    """Write a request's trace into a pod's annotations; return the span of the pod's creation."""
    if _here.tracer is None:
        return None
    from opentelemetry.trace import set_span_in_context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    context = set_span_in_context(span)
    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier, context=context)
    metadata = manifest["metadata"]
    metadata["annotations"] = {
        **(metadata.get("annotations") or {}), TRACE: carrier["traceparent"]
    }  # fmt: skip
    return _here.tracer.start_span("create", context=context)


def scheduled(
    traceparent: str,
    *,
    since: float,
    popped_at: float,
    decided_at: float,
    bound_at: float,
    attributes: dict[str, str | int],
) -> None:
    """Record the spans of a pod that was bound; times are seconds since the epoch."""
    if _here.tracer is None:
        return
    context = _parent(traceparent)
    for name, begin, end in (
        ("queue", since, popped_at),
        ("scheduling cycle", popped_at, decided_at),
        ("bind", decided_at, bound_at),
    ):
        span = _here.tracer.start_span(
            name, context=context, start_time=int(begin * _SECOND), attributes=attributes
        )
        span.end(int(max(begin, end) * _SECOND))
