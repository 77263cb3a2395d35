"""What people and their programs are told, and who they are.

::

    tokens       whom a bearer token stands for
    audit_log    the audit log, searched and verified
    notices      changes as CloudEvents
    webhooks     webhooks and their deliveries
"""
