"""The console: where people see the cluster, try a change before they make it, and understand.

::

    browser --https--> API server --(gate)--> console's process --> pages: a lane, Django, views
                                                                --> stream: open while a page is

A page is a Django view that reads, a template, and no rule of its own: what may be done is asked of
``clusterstate.access`` by ``frame.require``, what would happen of ``scheduling.answers``, and what
is done is done by ``clusterstate.actions``. A change of nodes or pods is a plan: previewed,
confirmed and followed by what serves ``/apis/stowage.dev/v1/plans``. Pages hold their state in the
address, so that every view of the cluster can be sent to a colleague.

Pages stay true by ``stream``: it tells an open page which objects changed, and each part of a page
that shows them asks for itself again (htmx); idiomorph changes what differs, so that focus,
selection and scroll position stay. The map of the fleet takes columns instead of HTML.

Scripts are small modules in ``static/console``; nothing is built, nothing is loaded from elsewhere,
and the policy of every page allows neither inline scripts nor styles nor ``eval``.

::

    layout           what every page has: sign-in, rights, errors as pages, the policy, navigation
    urls             the paths
    proxy            how the API's servers hand requests over to the console's process
    stream           server-sent events: which objects changed, four times a second at most
    fragment_cache   parts of pages, and how often open pages refresh them
    node_cache       the nodes with the requests of their pods, in memory, from the change log
    shared           answers of an advisor that open pages share for a few seconds
    time_travel      the moment that an address asks for, and links that stay there
    formatting       times, amounts and shares as people read them; template filters
    language         the query language of lists of nodes
    signing          signing in and out, with one-time codes
    company          signing in with the company's accounts
    account          one's own account, and one-time codes as a second factor
    first            the first run: example nodes and a pod at the press of a button
    fleet            all nodes on one map, what waits, what leaves, what was decided
    nodes            the list of nodes
    node             a node: its pods, conditions, timers and history, and the editors
    devices          pools of devices, who has each, and the claims of a pod
    pods             the list of pods
    pod              a pod: its timeline, decisions, events and YAML
    submit           a new pod, by a form, by YAML or by example
    reasons          groups of waiting pods, and a pod's verdicts node by node
    reasons_text     what stands in the way of a pod, read from the scheduler's sentence
    decisions        a search across pods, and one decision with its nodes compared
    evictions        who leaves which node, when and why; approving a brake
    direct_eviction  eviction and deletion of pods for users who may not create plans
    change           the preview of a change of nodes or pods
    plan_forms       the changes that an address or a text asks for, as entries of a plan
    plan_preview     what a plan foretells and how far it is carried out
    plans            a plan, and the list of plans
    outcomes         how many pods that a plan evicts find a node, and in which zones
    what_if          a basket of changes that any page adds to, side by side with today
    merging          a person's change of an object and what others changed meanwhile
    policies         kinds, quotas with their use, who may do what, the configuration
    plugins          the effective plugins of the scheduler in each profile
    canaries         configurations on trial, and putting one in force
    comparisons      the recent past beside what other configurations would have made of it
    records          the audit log, and the objects of every served kind
    downloads        tables as files
    palette          Ctrl+K: pages, objects and actions by what was typed
    throughput       latency and throughput of the last hour, drawn on the server
"""
