"""The local side of ``manage.py up``: processes, files and ports; no part of the cluster's state.

::

    embedded       PostgreSQL and a Redis-protocol server as child processes
    places         where their binaries, data and sockets lie, and their URLs
    account        the user who runs PostgreSQL when root starts the service
    reach          how that user gets at data and programs below folders it cannot enter
    parts          which processes are kept running
    capacity       how many sessions of the database they may hold
    family         processes that are forked from the supervisor, and share its modules
    supervisor     starts the service's processes, and replaces those that end or hang
    renewal        replaces processes one after the other, without a pause
    preparation    migrations, versions and locks of the database; backup and restore
    credentials    certificates, the administrator's token, kubeconfig
    first_token    the token that a new state directory begins with
    hollow         nodes without machines, for trials: they send heartbeats and report pods
    progress       a progress bar on a terminal

Only commands, settings and tests import it; a service whose PostgreSQL and Redis run elsewhere
needs none of it.
"""
