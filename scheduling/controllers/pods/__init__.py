"""Pods that no agent ends.

``deletion`` ends what was deleted. ``podgc`` ends what was left behind: pods of a node that is gone
(20 s later) or out of service, and finished pods when there are too many.

``resource_claims`` makes claims of devices for pods, and gives the devices back after them.
``unclaimed`` tells pods that no profile has the name of their scheduler.
"""
