"""Plugins that come along and that no profile uses by itself, made as the packages of others are.

They import ``scheduling.framework.v1`` and nothing else of Stowage, and are offered by entry points
(``installed.SHIPPED``).

::

    gpu_fragmentation  places pods where they leave most room for typical GPU pods
"""
