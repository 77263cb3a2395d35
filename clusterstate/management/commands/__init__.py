"""The commands of ``manage.py``.

::

    up            the whole service under one supervisor
    prepare       bring the database up to date
    reload        use upgraded plugins, without a restart
    reset         remove the state directory and everything in it
    backup        save the whole database
    restore       replace the whole database by a backup
    audit         compare redundant data in the database
    auditlog      verify that no line of the audit log, and no decision, was changed
    decisions     write the scheduler's decisions as JSON lines or as an Arrow stream
    createtoken   make an API token and print it, once
    listtokens    list tokens with their users, and when they expire
    revoketoken   revoke API tokens
    rotatetoken   replace the state directory's token
    kubeconfig    print or write a kubeconfig for a token
    signingkeys   the keys that sign service accounts' tokens
    hollow-nodes  simulate the agents of many nodes
"""
