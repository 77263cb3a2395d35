"""The scheduler's configuration, and the effects of another one.

::

    policies       kinds, quotas with their use, who may do what, the configuration
    plugins        the effective plugins of the scheduler in each profile
    comparisons    the recent past replayed with other configurations
    canaries       configurations on trial, and putting one in force
"""
