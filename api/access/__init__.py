"""Authentication and authorization of requests; ``clusterstate.access`` decides.

::

    auth             whose request it is: bearer tokens and browsers' sessions
    impersonation    acting for another user
    permissions      the one permission class of all views
    reach            how far back a right tells of the past
    naming           which pods an answer may name
    naming_objects   which objects a question names, and who is told of them
    notice_rights    which rights whoever is told of changes needs
    outgoing         which services a question may have asked
    account_tokens   new tokens of service accounts
    issuer           who issues service accounts' tokens, and the keys to check them with
"""
