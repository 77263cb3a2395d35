"""The health of every part of a service, asked now and not by the thread that looks."""

from api.server import health
from api.server.health_texts import Part


def parts_now() -> list[Part]:
    """Return every part as it is now. Queries, and asks Redis."""
    return [Part("web"), *(part for check in health.CHECKS for part in health.run_check(check))]
