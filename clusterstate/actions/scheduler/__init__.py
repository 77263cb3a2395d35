"""State that the scheduler stores.

::

    scheduler_configuration    every version of the configuration; the last one is in force
    canaries                   configurations on trial
    decisions, seals           decision records; the chain of digests over them
    decision_checks            decisions that were repeated, and whether the results were equal
    claiming                   binds pods that claim devices, with their claims; releases claims
    reservations               pods that have a node and are not bound yet
    leases                     which of several schedulers at work is silent
"""
