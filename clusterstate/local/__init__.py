"""The local side of ``manage.py up``: processes, files and ports; no part of the cluster's state.

::

    embedded       PostgreSQL and a Redis-protocol server as child processes
    places         paths of their binaries, data and sockets, and their URLs
    account        the system user that runs PostgreSQL if root starts the service
    reach          gives that user access to data and programs in closed folders
    parts          the list of processes to run
    capacity       how many database sessions these may open
    family         processes forked from the supervisor, which share its modules
    supervisor     starts the service's processes, and replaces those that end or hang
    renewal        replaces processes one after the other, without a pause
    preparation    migrations, versions and locks of the database; backup and restore
    credentials    certificates, the administrator's token, kubeconfig
    first_token    the first token of a new state directory
    hollow         nodes without machines, for trials: they send heartbeats and report pods
    progress       a progress bar on a terminal

Only commands, settings and tests import it; a service whose PostgreSQL and Redis run elsewhere does
not need it.
"""
