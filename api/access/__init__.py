"""Authentication and authorization of requests; ``clusterstate.access`` decides.

::

    auth             the user of a request: bearer tokens and browsers' sessions
    impersonation    acting for another user
    permissions      the permission class of all views
    reach            how much of the past a right covers
    naming           which pods an answer may name
    naming_objects   which objects a question names, and which users may see them
    notice_rights    the rights that receivers of events need
    outgoing         which extenders a question may name
    account_tokens   new tokens of service accounts
    issuer           the issuer of service accounts' tokens, and its public keys
"""
