"""Webhooks: the cluster's events, sent to programs over HTTP.

``delivery`` reads the change log after a webhook's cursor, makes the requested events of it
(`clusterstate.queries.people.notices`), sends them in order and moves the cursor; ``client`` sends
one request to an allowed address. One session at a time delivers for a webhook, by an advisory lock
that ends with the session. A thread of the worker, which checks each second for due webhooks, or a
Celery task delivers; either alone is enough.
"""
