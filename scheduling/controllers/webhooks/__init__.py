"""Webhooks: the cluster's events, sent to programs over HTTP.

``delivery`` reads the change log after a webhook's cursor, makes the events that it wants of it
(`clusterstate.queries.people.notices`), sends them in order and moves the cursor; ``client`` sends
one request to an address that is allowed. One session at a time delivers for a webhook, by an
advisory lock that ends with the session. A thread of the worker's loop delivers, which looks each
second for webhooks that are due, or a Celery task; either alone is enough.
"""
