from django.db import migrations, models

# Who removes an object or ends a pod, whichever way, leaves a row in `usage_change` where the
# namespace has quotas (`clusterstate.models`). Creations are charged by `clusterstate.actions`.
#
# The shared lock makes a quota that is being counted wait for those who have looked for quotas and
# found none; they hold it until their removal is committed, and is not counted then. Its key is
# QUOTA_LOCK of `clusterstate.changes`; a test holds both together.
#
# Quotas of before were never counted: the quota controller does it when it starts.
TABLES = (
    ("service", 7),
    ("replication_controller", 8),
    ("replica_set", 9),
    ("stateful_set", 10),
    ("daemon_set", 11),
    ("deployment", 12),
    ("lease", 13),
    ("limit_range", 14),
    ("resource_quota", 16),
    ("pod_disruption_budget", 6),
)
FORWARD = r"""
CREATE FUNCTION quota_lock() RETURNS void LANGUAGE sql AS $$
    SELECT pg_advisory_xact_lock_shared((x'5358'::bigint << 48) + 20)
$$;

CREATE FUNCTION note_removed_pods() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM quota_lock();
    INSERT INTO usage_change (namespace, kind, before_document_id, before_class_id, before_finished)
    SELECT g.namespace, 1, g.document_id, g.class_id, g.phase IN ('Succeeded', 'Failed')
    FROM gone g WHERE EXISTS (SELECT FROM resource_quota q WHERE q.namespace = g.namespace);
    RETURN NULL;
END $$;

CREATE TRIGGER pod_usage_removed AFTER DELETE ON pod REFERENCING OLD TABLE AS gone
FOR EACH STATEMENT EXECUTE FUNCTION note_removed_pods();

CREATE FUNCTION note_changed_pod() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM quota_lock();
    INSERT INTO usage_change (namespace, kind, before_document_id, before_class_id, before_finished,
                              after_document_id, after_class_id, after_finished)
    SELECT NEW.namespace, 1, OLD.document_id, OLD.class_id, OLD.phase IN ('Succeeded', 'Failed'),
           NEW.document_id, NEW.class_id, NEW.phase IN ('Succeeded', 'Failed')
    WHERE EXISTS (SELECT FROM resource_quota q WHERE q.namespace = NEW.namespace);
    RETURN NULL;
END $$;

CREATE TRIGGER pod_usage_changed AFTER UPDATE OF phase, class_id ON pod FOR EACH ROW
WHEN (OLD.class_id <> NEW.class_id
      OR (OLD.phase IN ('Succeeded', 'Failed')) <> (NEW.phase IN ('Succeeded', 'Failed')))
EXECUTE FUNCTION note_changed_pod();

CREATE FUNCTION note_removed_objects() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM quota_lock();
    INSERT INTO usage_change (namespace, kind, before_document_id)
    SELECT g.namespace, TG_ARGV[0]::smallint, g.document_id
    FROM gone g WHERE EXISTS (SELECT FROM resource_quota q WHERE q.namespace = g.namespace);
    RETURN NULL;
END $$;

CREATE FUNCTION note_removed_generic() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM quota_lock();
    INSERT INTO usage_change (namespace, kind, before_document_id)
    SELECT g.namespace, g.kind, g.document_id
    FROM gone g WHERE EXISTS (SELECT FROM resource_quota q WHERE q.namespace = g.namespace);
    RETURN NULL;
END $$;

CREATE TRIGGER generic_object_usage_removed AFTER DELETE ON generic_object
REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION note_removed_generic();
"""
REMOVED = "".join(
    f"""
CREATE TRIGGER {table}_usage_removed AFTER DELETE ON {table} REFERENCING OLD TABLE AS gone
FOR EACH STATEMENT EXECUTE FUNCTION note_removed_objects({code});
"""
    for table, code in TABLES
)
UNCOUNTED = """
INSERT INTO usage_change (namespace, kind) SELECT DISTINCT namespace, 0 FROM resource_quota;
"""
KEPT = "".join(
    f"DROP TRIGGER {table}_usage_removed ON {table};\n"
    for table in ("generic_object", *(table for table, _ in TABLES))
)
BACKWARD = """
DROP TRIGGER pod_usage_changed ON pod;
DROP TRIGGER pod_usage_removed ON pod;
DROP FUNCTION note_removed_generic();
DROP FUNCTION note_removed_objects();
DROP FUNCTION note_changed_pod();
DROP FUNCTION note_removed_pods();
DROP FUNCTION quota_lock();
"""


class Migration(migrations.Migration):
    dependencies = [("clusterstate", "0024_signing_keys")]
    operations = [
        migrations.CreateModel(
            name="UsageChange",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("namespace", models.TextField(db_collation="C")),
                ("kind", models.SmallIntegerField()),
                ("before_document_id", models.BigIntegerField(null=True)),
                ("before_class_id", models.BigIntegerField(null=True)),
                ("before_finished", models.BooleanField(db_default=False, default=False)),
                ("after_document_id", models.BigIntegerField(null=True)),
                ("after_class_id", models.BigIntegerField(null=True)),
                ("after_finished", models.BooleanField(db_default=False, default=False)),
            ],
            options={
                "db_table": "usage_change",
                "indexes": [models.Index(fields=["namespace"], name="usage_change_namespace")],
            },
        ),
        migrations.RunSQL([FORWARD, REMOVED, UNCOUNTED], [KEPT, BACKWARD]),
    ]
