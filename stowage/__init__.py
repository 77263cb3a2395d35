"""Stowage for programs: what may be imported, and the command ``stowage``.

::

    library     Cluster, simulate, pack, read_trace, compare: the decision core without a service
    client      for programs that use a running service
    cli         the command line; ``__main__`` runs it in a checkout
    mcp_server  answers for programs that reason, by the Model Context Protocol
    _product    the service's own packages, under a name that is nobody else's

Names of ``library`` are imported from here. Nothing heavy is loaded before it is used.
"""

from stowage._product import module as _module
from stowage.library import (
    Cluster,
    Comparison,
    Decision,
    Invalid,
    Result,
    compare,
    pack,
    pod,
    read_trace,
    simulate,
)

__all__ = [
    "Cluster",
    "Comparison",
    "Decision",
    "Invalid",
    "Result",
    "compare",
    "pack",
    "pod",
    "read_trace",
    "simulate",
]

__version__: str = _module("clusterstate").__version__
