"""Stowage for programs: what may be imported, and the command ``stowage``.

``_product``           the service's own packages, under a name that is nobody else's
``__main__``           the command line
"""

from stowage._product import module as _module

__version__: str = _module("clusterstate").__version__
