"""How the scheduler is configured, and what another configuration would do.

::

    policies       kinds, quotas with their use, who may do what, the configuration
    plugins        the effective plugins of the scheduler in each profile
    comparisons    the recent past beside what other configurations would have made of it
    canaries       configurations on trial, and putting one in force
"""
