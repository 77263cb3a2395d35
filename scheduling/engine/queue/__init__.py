"""The queue of pending pods: which to try next, and which events or times the others wait for.

A pod is in one of five stages:

    add -> ACTIVE -> pop_batch -> IN_FLIGHT -> done
             ^           ^            |
             |           |            | rejected by plugins        failed otherwise
             |           |            v                                   |
             |<-- event or flush -- UNSCHEDULABLE --+                     |
             |           |                          | backoff not over    |
             |           +--- no pod is active ---+ v                     |
             +<------------- time --------------- BACKOFF <---------------+
    add -> GATED (a PreEnqueue plugin holds it back) -> like UNSCHEDULABLE

    scheduling_queue  PriorityQueue: every way in, between the stages, and out
    active            ActivePods: the pods to try, and the choice of the next batch
    waiting           WaitingPods: pods that plugins rejected, grouped by what may help them; runs
                      the hints (``plugins.queueing_hints`` states them)
    in_flight         PodsInFlight: pods that are being decided, and the events since
    timers            Timers: the ends of backoffs, and the times of the flush
    early             EarlyAttempts: pods that may be tried before their backoff is over
    allowance         Allowance: the rate limit of such attempts
    pending           a pod, its place in the queue, its backoff, its items in heaps
    waking            turns changes of the cluster into events for the queue
    plugins           QueuePlugins: QueueSort and PreEnqueue of the profiles

*Active* pods are popped in the order of the sort key (priority, then time queued; where the
configuration asks for ageing, priority grows with the time since a pod arrived,
``pending.aged_sort``), then of the pod's id. There is one exception: pods that were refused before
are not all popped at once. They are kept by class, with their sisters (pods of the same class), and

* a class that just became active sends one pod, its *probe*; the sisters wait for its outcome;
* once the probe is placed the class is *open* and its pods are popped by key, as fresh ones are;
* once it is refused the class is *shut*: a few of its pods are popped with each batch, more where
  no other pod waits, until the next event, which may have changed the reason (then one is tried
  again);
* a batch takes as many probes as were lately successful, at least ``_PROBES``. If a probe precedes
  fresh pods in the order, the batch takes only ``_BESIDE_A_PROBE`` of these, since the probe's
  sisters precede them too.

So Kubernetes' promise holds: a pod of higher priority is tried before one of lower priority,
whether fresh or refused before; only its sisters may lose one short batch to the others. And a
fresh pod waits for ``_PROBES`` refusals at most, however many thousand pods are tried again.

A pod that failed waits 1 s, 2 s, 4 s ... 10 s, rounded up to a full second, so that pods whose
waits end in the same second return together. Attempts that plugins rejected and attempts that
failed otherwise (a plugin raised) are counted apart: failures do not lengthen the wait after a
rejection. While no pod is active, pods in BACKOFF that plugins rejected are tried early, in the
order in which their waits end. One pod of each class is tried then. If it is rejected, the same
state would reject its sisters, and they wait for an event that may help them, or for the end of
their backoff. Nominated pods do not wait for others: when an event wakes them, they are active at
once. At most ``early.A_SECOND`` early tries a second may fail. A pod that failed otherwise always
waits, and so does a pod that returned from Permit or PreBind: a plugin that first answers Wait and
then rejects does not judge by free resources alone.

A pod that plugins rejected waits until an event may change one rejection: each plugin registers
events with hints, and waiting pods are grouped by class and plugins, so that an event costs one
hint per group and not per pod. Events during a pod's decision are kept and applied when the pod
returns, because the decision has not seen them; events while it waits on Permit or PreBind
(*parked*) are only counted. After five minutes a pod is tried again in any case. Of many pods that
wake together ``_AT_ONCE`` move in one call, the others with the next batches.

In memory only: the clock is the argument ``now`` (seconds since the epoch), and the caller stores
what ``take_changes`` returns, so that it survives a restart. Being in flight is not stored unless
the pod is parked: after a restart such a pod is active again. Rules:
pkg/scheduler/backend/queue/scheduling_queue.go, active_queue.go (``unlockedPop``) and
backoff_queue.go, v1.36 (R151).
"""
