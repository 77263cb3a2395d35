"""Authorization: one function that decides for the API, the admin, the commands and the reviews.

::

    tables of roles and bindings --(authorizer: read when they changed)--> Policy --> decide()
    default_roles, controller_roles: what every cluster has, reconciled by prepare
    rules: whether a rule allows a request or covers another rule
    people, accounts: who is signed in to the admin; tokens of service accounts

``decide`` answers from three sources, in this order, as kube-apiserver does: ``system:masters`` may
do everything; a node may do what its own agent needs (``nodes``); everybody else, and a node beyond
that, may do what a binding gives (``policy``). What no binding gives is refused; there is no rule
that denies.

A process keeps the policy in memory and compares it with the tables when this process wrote a role
or a binding, and otherwise every ``authorizer.FRESH_SECONDS``, so a right that is taken away works
for at most that long. A check is a look-up in a dictionary: the policy remembers what it answered
to a user, and is replaced as a whole when a role or a binding changes.
"""
