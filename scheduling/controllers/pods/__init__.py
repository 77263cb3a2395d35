"""Pods that no agent ends: ``deletion`` ends what was deleted, ``podgc`` what was left behind.

``resource_claims`` makes claims of devices for pods, and gives the devices back after them.
``unclaimed`` tells pods that no profile has the name of their scheduler.
"""
