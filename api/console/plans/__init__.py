"""Changes of nodes and pods: chosen, previewed, confirmed and followed.

::

    what_if            a basket of changes that any page adds to, compared with the present
    change             the preview of one change of nodes or pods
    direct_eviction    eviction and deletion of pods for users who may not create plans
    node_advice        which nodes to buy and remove: maps before and after, moves, prices
    plan_forms         the changes in a URL or a text, as entries of a plan
    plan_preview       a plan's prediction and progress, for templates
    plan_pages         a plan, and the list of plans
"""
