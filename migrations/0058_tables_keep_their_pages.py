from django.db import migrations

TABLES = (
    "asked_eviction", "bind_batch", "brake", "change", "daemon_set", "deferred_resize",
    "deployment", "document", "event", "eviction_timer", "generic_object", "lease",
    "limit_range", "namespace", "node", "node_binder", "node_heartbeat", "node_usage",
    "pending_pod", "pod", "pod_disruption_budget", "priority_class", "replica_set",
    "replication_controller", "reservation", "resource_quota", "runtime_class",
    "scheduling_class", "service", "set_aside", "stateful_set", "superseded_document", "taint",
    "terminating_pod", "usage_change",
)  # fmt: skip
FORWARD = "".join(f"ALTER TABLE {table} SET (vacuum_truncate = off);\n" for table in TABLES)
BACKWARD = "".join(f"ALTER TABLE {table} RESET (vacuum_truncate);\n" for table in TABLES)


class Migration(migrations.Migration):
    """VACUUM of a table that is empty for a while leaves its pages.

    PostgreSQL plans for the pages that a table has. A session that planned a statement while the
    table had none reads the whole table each time it executes that plan, until the next ANALYZE:
    525 rows for each pod, in a burst of 1,500 pods after all pods were deleted.
    """

    dependencies = [("clusterstate", "0057_several_schedulers")]

    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
