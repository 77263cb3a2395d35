"""A client for programs: pods in, places out, whatever is restarted meanwhile.

::

    connections    where the server is and who asks: STOWAGE_*, kubeconfig files
    exchange       one request, repeated while that is safe; lists by pages, watches that resume
    placing        many pods submitted, all of their places by one watch
    questions      why, what if, headroom, plans, decisions, the configuration
    fleet          nodes, and what the pods on them ask for
    blocking       the same for programs without an event loop

``AsyncClient`` is the client; ``Client`` runs one in a thread. docs/client.md has recipes.
"""

from stowage.client.blocking import Client
from stowage.client.connections import Connection, NoConnection
from stowage.client.exchange import APIError, Event, Unreachable
from stowage.client.placing import Placement, State
from stowage.client.questions import AsyncClient

__all__ = [
    "APIError",
    "AsyncClient",
    "Client",
    "Connection",
    "Event",
    "NoConnection",
    "Placement",
    "State",
    "Unreachable",
]
