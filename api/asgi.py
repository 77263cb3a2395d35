"""The ASGI entry point: ``uvicorn api.asgi:application``."""

import os
import sys

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "clusterstate.settings")

from django.conf import settings  # the settings must be named first
from django.core.wsgi import get_wsgi_application

_django = get_wsgi_application()

# These import tables, which the line above prepared.
from api.serving import Application  # noqa: E402
from clusterstate import collector  # noqa: E402
from clusterstate.objects import schema  # noqa: E402

schema.make_ready()
application = Application(_django, threads=settings.WEB_THREADS)

# Half a dozen threads hand a request on to each other: none should wait 5 ms for its turn, nor be
# interrupted too often.
sys.setswitchinterval(0.002)

collector.calm()
