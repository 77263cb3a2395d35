"""The ASGI entry point: ``uvicorn api.asgi:application``."""

import contextlib
import os
import sys
from typing import Any

from clusterstate.processes import collector

collector.seldom()
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "clusterstate.settings")

from django.conf import settings  # noqa: E402  # the settings must be named first
from django.core.wsgi import get_wsgi_application  # noqa: E402
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware  # noqa: E402

_django = get_wsgi_application()

# These import tables, which the line above prepared.
from api.console.proxy import CONSOLE_NICENESS, BehindGate  # noqa: E402
from api.server.shares import SWITCH_SECONDS  # noqa: E402
from api.serving import Application  # noqa: E402
from clusterstate.objects.registry import schema  # noqa: E402

schema.make_ready()
application: Any = Application(_django, threads=settings.WEB_THREADS)
if settings.PROCESS == "console":
    application = BehindGate(application)
    # Where CPUs are short, pages that are open wait for the API's requests, and not these for them.
    with contextlib.suppress(OSError):
        os.nice(CONSOLE_NICENESS)
if settings.TRUSTED_PROXIES:
    application = ProxyHeadersMiddleware(application, trusted_hosts=settings.TRUSTED_PROXIES)

sys.setswitchinterval(SWITCH_SECONDS[False])

collector.calm()
