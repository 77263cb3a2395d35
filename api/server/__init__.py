"""Between the connection and the view: what a web process does with every request.

::

    protocol               uvicorn's HTTP protocol with deadlines and limits
    handshakes             TLS handshakes, limited in number
    scopes, sending        requests as ASGI scopes and WSGI environments; sending answers
    lanes                  threads that serve requests, fairly among flows (users)
    shares                 which flows are delayed while the process is busy
    compression            large answers in gzip
    batches                requests that wait together are served together
    sessions               caches which browser sessions are valid
    budget                 refuses a request if its flow has too many bytes in memory
    room                   refuses writes while the disk is nearly full
    connections            the database connection of a request thread
    audit                  the audit log; audit_events has its lines, audit_file its file
    metrics, traces        metrics of requests; the span of a request that creates a pod
    health, pulse          whether a pod posted now will be placed now; heartbeats
    health_texts           the texts of /livez, /healthz and /readyz, and of single parts

``api.serving`` combines these and calls the views; nothing here does.
"""
