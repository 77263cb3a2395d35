"""Reads about users and their programs: tokens, the audit log, notices, webhooks.

::

    tokens       the user of a bearer token
    audit_log    the audit log, searched and verified
    notices      changes as CloudEvents
    webhooks     webhooks and their deliveries
"""
