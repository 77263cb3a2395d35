"""What reacts to the change log besides the scheduler: who must leave, which nodes are alive.

Each controller is two modules. The rules (``*_rules``) are pure: state and time in, verdict out, as
Kubernetes' controllers decide. The other one follows the log, asks the rules and calls actions. A
controller keeps nothing that a restart could lose: cursors, timers and token buckets are rows, and
Celery only wakes somebody up.
"""
