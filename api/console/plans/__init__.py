"""Changes of nodes and pods: chosen, previewed, confirmed and followed.

::

    what_if            a basket of changes that any page adds to, side by side with today
    change             the preview of one change of nodes or pods
    direct_eviction    eviction and deletion of pods for users who may not create plans
    node_advice        which nodes to buy and remove: maps before and after, moves, prices
    plan_forms         the changes that an address or a text asks for, as entries of a plan
    plan_preview       what a plan predicts and how far it is carried out
    plan_pages         a plan, and the list of plans
"""
