"""Webhooks: telling programs of events over HTTP.

``delivery`` reads the change log after a webhook's cursor, makes the events that it wants of it
(`clusterstate.queries.notices`), sends them in order and moves the cursor; ``client`` sends one
request to an address that is allowed. One session at a time delivers for a webhook, by an advisory
lock that goes with the session. Who delivers is a task of Celery's, or a thread of the worker's
loop that looks each second which webhooks have something to do: either alone is enough.
"""
