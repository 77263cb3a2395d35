"""The scheduling worker: pending pods in, bindings, refusals and records out.

::

    loop               cycle after cycle under a lock, with a pause while the queue is empty
    scheduler          a cycle: refresh, decide a batch, write the decisions
    division           which scheduler decides which pods, if several work
    standby            keeps the mirror of a second worker up to date until that one takes over
    mirror             the cluster in memory: snapshot and queue, kept up with the change log
    binder             binds batches in a thread while the next batch is decided; takes back what
                       the database refused to bind; deletes the victims of preemption
    unwritten_refusals  conditions and queue places of pods that fit nowhere, written later
    reservations       pods of profiles with Reserve, Permit, PreBind or PostBind plugins
    groups             pods that are decided and bound together; the conditions of PodGroups
    reserved_pod       a pod with a reservation, as Permit plugins see it
    binding_cycle      PreBind, Bind and PostBind plugins of reserved pods, run on threads of the
                       process with the controllers (``processes.duties``)
    recorder           decision records, kept until there is time to write them; once written, the
                       loop ``duties.pack_and_seal`` seals them (``actions.scheduler.seals``)
    pod_events         Events about pods, kept until the queue is empty, then written
    arrival_checks     pods that a client put on a node: can the node run them?
    warming            the engine's compiled loops: loaded from disk, or compiled by another process
    failed_batches     smaller batches after a failure, until the pod that causes it is found
    profiles           the scheduler configuration in force; ``guard`` watches one on trial
    stored_pods        reads stored pods, for plugins that need more than a class
    device_store       writes ResourceClaims whose devices must be ready before the binding
    volume_store       writes which volumes a placed pod gets, and finds out when they are bound
    measuring, traces  metrics of attempts; spans of traced pods

One scheduler works at a time in the whole system, under a session advisory lock, or as many as are
configured, each under a lock of its own. It decides on the mirror's snapshot, which *assumes* each
placed pod at once; the binder writes the binding and ``changes`` confirm it, or the snapshot
*forgets* the pod and the pod goes back to the queue. The rows are the truth and every write is
conditional on them, so the memory of this package may be thrown away at any moment: a restarted
worker loads the rows and decides the same.

If a plugin raises, the decision about that one pod fails: `framework.outcomes` makes a
``PluginFailed`` of the exception, ``engine.reference.cycle`` a decision with the outcome ``error``,
and the pod waits in the queue as after any other failure. Any other exception fails the batch
(``failed_batches``).
"""
