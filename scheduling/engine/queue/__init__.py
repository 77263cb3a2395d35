"""The queue of pending pods: which pods to try next, and which wait for what.

A pod is in one of five stages:

    add -> ACTIVE -> pop_batch -> IN_FLIGHT -> done
             ^           ^            |
             |           |            | rejected by plugins        failed otherwise
             |           |            v                                   |
             |<-- event or flush -- UNSCHEDULABLE --+                     |
             |           |                          | backoff not over    |
             |           +--- no pod is active ---+ v                     |
             +<------------- time --------------- BACKOFF <---------------+
    add -> GATED (a PreEnqueue plugin holds it) -> like UNSCHEDULABLE

    scheduling_queue  PriorityQueue: every way in, between the stages, and out
    active            ActivePods: what may be tried, and which of it makes up a batch
    waiting           WaitingPods: what plugins rejected, by what may help it; asks the hints
                      (``plugins.queueing_hints`` states them)
    in_flight         PodsInFlight: what is being decided, and the events since
    timers            Timers: pods whose backoff is over, and pods that are due in any case
    early             EarlyAttempts: what may be tried before its backoff is over
    allowance         Allowance: how many such attempts there may be
    pending           a pod, its place in the queue, how long it backs off, and how heaps name it
    waking            which events of the cluster reach the queue
    plugins           QueuePlugins: QueueSort and PreEnqueue of the profiles, as the queue asks them

*Active* pods come out by the sort key (priority, then time queued; where the configuration asks for
ageing, priority grows with the time since a pod came, ``pending.aged_sort``), which the pod's id
makes total, with one exception: pods that were refused before do not all come at once. They are
kept by class, with their sisters (pods of their class), and

* a class that just became active sends one pod, its *probe*; the sisters wait for its outcome;
* once the probe is placed the class is *open* and its pods come in the order of the key, as fresh
  ones do;
* once it is refused the class is *shut*: a few of its pods come with each batch, more where no
  other pod waits, until the next event, which may have changed the reason (then one is tried
  again);
* a batch takes as many probes as were of use lately, at least ``_PROBES``, and together with a
  probe that stands before fresh pods only ``_BESIDE_A_PROBE`` of these, since the probe's sisters
  have the better claim to the room.

So Kubernetes' promise holds: a pod of higher priority is tried before one of lower priority,
whether fresh or refused before; only its sisters may lose one short batch to the others. And a
fresh pod waits for ``_PROBES`` refusals at most, however many thousand pods are tried again.

A pod that failed waits 1 s, 2 s, 4 s ... 10 s, and on to the end of that second, so that pods whose
waits end together come back together. Attempts that plugins ended and attempts that failed
otherwise, as of a plugin that raised, are counted apart: a pod that a plugin rejects after several
failures does not wait for these too. While no pod is active, those in BACKOFF that plugins rejected
are tried before it is over, in the order in which it would be: a woken pod does not wait while
there is nothing else to do. One pod of each class is tried then. If it is rejected, the same state
would reject its sisters, and they wait for an event that may help it, or for the end of their
backoff. Nominated pods do not wait for others: woken, they are active at once. At most
``early.A_SECOND`` early tries a second may fail. A pod that failed otherwise waits in
any case, and so does a pod that came back from Permit or PreBind: a plugin that says Wait and then
no does not judge by the free room alone.

A pod that plugins rejected waits until an event may have changed the mind of one of them: each
plugin registers events with hints, and waiting pods are grouped by class and plugins, so that an
event costs one hint per group and not per pod. Events that come while a pod is being decided are
kept and looked at when it comes back, because the decision has not seen them; those that come while
it waits on Permit or PreBind (*parked*) are only counted. After five minutes a pod is tried again
in any case. Of many that wake at once ``_AT_ONCE`` move in one call, the others with the next
batches.

Pure and in memory: the clock comes in as ``now`` (seconds since the epoch), and what must survive a
restart goes out by ``take_changes``. Being in flight is not written down, unless the pod is parked:
after a restart such a pod is simply active again. Rules:
pkg/scheduler/backend/queue/scheduling_queue.go, active_queue.go (``unlockedPop``) and
backoff_queue.go, v1.36 (R151).
"""
