"""Authorization: one function that decides for the API, the admin, the commands and the reviews.

::

    tables of roles and bindings --(authorizer: read after changes)--> Policy --> decide()
    default_roles, controller_roles: roles and bindings of every cluster, reconciled by prepare
    rules: whether a rule allows a request or covers another rule
    people, accounts: people who are signed in to the admin; tokens of service accounts

``decide`` has three sources, in this order, as in kube-apiserver: ``system:masters`` may do
everything; a node's agent has fixed rights (``nodes``); bindings give further rights to agents and
all other users (``policy``). Everything else is refused; there is no rule that denies.

A process caches the policy in memory. It compares the policy with the tables after it wrote a role
or a binding itself, and otherwise every ``authorizer.FRESH_SECONDS``, so a removed right works for
at most that long. A check is a look-up in a dictionary: the policy caches its answers by user, and
is replaced as a whole when a role or a binding changes.
"""
