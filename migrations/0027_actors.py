from django.db import migrations, models

# Who makes each change. Code of the version before writes changes without an actor, so the columns
# stay nullable; adding them rewrites nothing.
#
# `write_version` logs what was written by hand into rows that an object's document is composed of
# (0021). It names the role of the database that did it.
WRITE_VERSION = """
CREATE OR REPLACE FUNCTION write_version(
    class regclass, code smallint, object bigint, new_text text)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    old record;
    new_revision bigint := next_revision();
    new_document bigint;
    writer integer;
BEGIN
    EXECUTE format('SELECT name, document_id, revision, deletion_at FROM %s WHERE id = $1', class)
        INTO old USING object;
    INSERT INTO document (text) VALUES (new_text) RETURNING id INTO new_document;
    EXECUTE format('UPDATE %s SET document_id = $2, revision = $3 WHERE id = $1', class)
        USING object, new_document, new_revision;
    INSERT INTO superseded_document (document_id, revision)
        VALUES (old.document_id, new_revision);
"""
NOW = """
    INSERT INTO actor (name, impersonator, used_at)
        VALUES ('system:database:' || session_user, '', now())
        ON CONFLICT (name, impersonator) DO UPDATE SET used_at = now() RETURNING id INTO writer;
    INSERT INTO change (revision, at, kind, verb, object_id, namespace, name, document_id,
                        previous_document_id, previous_revision, deletion_at, actor_id)
        VALUES (new_revision, clock_timestamp(), code, 2, object, '', old.name, new_document,
                old.document_id, old.revision, old.deletion_at, writer);
END $$;
"""
BEFORE = """
    INSERT INTO change (revision, at, kind, verb, object_id, namespace, name, document_id,
                        previous_document_id, previous_revision, deletion_at)
        VALUES (new_revision, clock_timestamp(), code, 2, object, '', old.name, new_document,
                old.document_id, old.revision, old.deletion_at);
END $$;
"""


class Migration(migrations.Migration):
    dependencies = [("clusterstate", "0026_metric_totals")]
    operations = [
        migrations.CreateModel(
            name="Actor",
            fields=[
                ("id", models.AutoField(primary_key=True, serialize=False)),
                ("name", models.TextField(db_collation="C")),
                ("impersonator", models.TextField(db_collation="C", default="")),
                ("used_at", models.DateTimeField()),
            ],
            options={
                "db_table": "actor",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("name", "impersonator"), name="actor_name_unique"
                    )
                ],
            },
        ),
        migrations.AddField(
            model_name="change", name="actor_id", field=models.IntegerField(null=True)
        ),
        migrations.AddField(
            model_name="change", name="cause", field=models.UUIDField(null=True)
        ),
        migrations.RunSQL(WRITE_VERSION + NOW, WRITE_VERSION + BEFORE),
    ]
