"""State that the scheduler stores.

::

    scheduler_configuration    every version of the configuration; the last one is in force
    canaries                   configurations on trial
    decisions, seals           decision records; the chain of digests over them
    decision_checks            decisions that were made again, and whether they came out the same
    claiming                   binds pods that claim devices, with their claims; gives claims back
    reservations               pods that have a node and are not bound yet
    leases                     which of several schedulers at work is silent
"""
