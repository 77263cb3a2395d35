"""The ASGI entry point: ``uvicorn api.asgi:application``."""

import gc
import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "clusterstate.settings")

from django.conf import settings  # the settings must be named first
from django.core.wsgi import get_wsgi_application

_django = get_wsgi_application()

from api.serving import Application  # noqa: E402  # imports tables, which the line above prepared

application = Application(_django, threads=settings.WEB_THREADS)

# What start-up made lives for ever: the collector need not look at it again and again, which would
# stop every request for tens of milliseconds now and then.
gc.collect()
gc.freeze()
gc.set_threshold(20_000, 20, 50)
