"""Between the connection and the view: what a web process does with every request.

::

    protocol               uvicorn's HTTP protocol with deadlines and limits
    handshakes             TLS handshakes, few at a time
    scopes, sending        a request as the server hands it over, and the answer on its way out
    lanes                  threads that serve requests, one flow after the other
    shares                 which flows give way while the process is busy
    compression            large answers in gzip
    batches                requests that wait together are answered together
    sessions               browsers whose session was seen to be good
    budget                 refuses a request if its flow has too many bytes in memory
    room                   refuses writes while the disk is nearly full
    connections            the database connection of a request thread
    audit                  the audit log; audit_events has its lines, audit_file its file
    metrics, traces        what requests took; the span of one that creates a pod
    health, pulse          whether a pod posted now will be placed now; signs of life
    health_texts           what /livez, /healthz and /readyz say in plain text, and of single parts

``api.serving`` puts these together and knows the views; nothing here does.
"""
