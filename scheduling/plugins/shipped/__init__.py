"""Plugins in this distribution that no profile uses by default, written like other packages'.

They import ``scheduling.framework.v1`` and nothing else of Stowage, and are offered by entry points
(``installed.SHIPPED``).

::

    gpu_fragmentation  places pods where they leave most room for typical GPU pods
"""
