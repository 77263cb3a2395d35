"""The scheduling worker: pending pods in, bindings, refusals and records out.

::

    loop               cycle after cycle under a lock; waits where there is nothing to do
    scheduler          a cycle: refresh, decide a batch, write what was decided
    division           which pods are whose where several schedulers work
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
    pod_events         Events about pods, kept until there is time to write them
    arrival_checks     pods that a client put on a node: can the node run them?
    warming            the engine's compiled loops: loaded, or compiled by a process beside
    failed_batches     smaller batches after a failure, until the pod that causes it is found
    profiles           the scheduler configuration in force; ``guard`` watches one on trial
    stored_pods        pods as stored, for plugins that look at more than a class
    device_store       writes claims whose devices have to get ready before the binding
    volume_store       writes which volumes a placed pod gets, and finds out when they are bound
    measuring, traces  metrics of attempts; spans of traced pods

One scheduler works at a time in the whole system, under a session advisory lock, or as many as are
asked for, each under its own. It decides on the mirror's snapshot, which *assumes* each placed pod
at once; the binder writes the binding and ``changes`` confirm it, or the snapshot *forgets* the pod
and the pod goes back to the queue. The rows are the truth and every write is conditional on them,
so the memory of this package may be thrown away at any moment: a restarted worker loads the rows
and decides the same.

A plugin that raises fails the pod that it was asked about, and no other: `framework.outcomes`
makes a ``PluginFailed`` of the exception, ``engine.reference.cycle`` a decision with the outcome
``error``, and the queue lets the pod wait as one that failed otherwise. An exception of anything
else fails the batch (``failed_batches``).
"""
