"""The text form of log lines: `TIME LEVEL LOGGER EVENT key=value ...`, exceptions below it."""

from structlog.processors import KeyValueRenderer
from structlog.typing import EventDict, WrappedLogger

_FIELDS = KeyValueRenderer(sort_keys=True, repr_native_str=False)


def render_text(logger: WrappedLogger, name: str, event: EventDict) -> str:
    """Return one line for a person, followed by the traceback when there is one."""
    exception = event.pop("exception", "")
    head = [str(event.pop(key, "-")) for key in ("timestamp", "level", "logger", "event")]
    fields = _FIELDS(logger, name, event)
    line = " ".join([head[0], f"{head[1]:<7}", *head[2:], *([str(fields)] if fields else [])])
    return f"{line}\n{exception}" if exception else line
