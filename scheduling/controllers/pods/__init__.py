"""Pods that no agent ends.

``deletion`` ends deleted pods. ``podgc`` ends pods of a node that is gone (20 s later) or out of
service, and finished pods when there are too many. ``resource_claims`` creates claims of devices
for pods, and gives the devices back after them. ``unclaimed`` marks pods whose schedulerName no
profile has.
"""
