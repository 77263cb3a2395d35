import django.contrib.postgres.fields.ranges
import django.contrib.postgres.indexes
from django.db import migrations, models

# VOLATILE: each query in it has a snapshot of its own, and so sees what was committed after the
# statement that calls it began (`clusterstate.change_log.changes`).
FUNCTIONS = """
CREATE FUNCTION whole_before(mark bigint) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    span int8range;
BEGIN
    LOOP
        SELECT revisions INTO span FROM atomic_span WHERE revisions @> mark LIMIT 1;
        EXIT WHEN NOT FOUND;
        mark := lower(span) - 1;
    END LOOP;
    RETURN mark;
END $$;

CREATE FUNCTION whole_after(revision bigint) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    span int8range;
BEGIN
    LOOP
        SELECT revisions INTO span FROM atomic_span WHERE revisions @> revision LIMIT 1;
        EXIT WHEN NOT FOUND;
        revision := upper(span);
    END LOOP;
    RETURN revision;
END $$;
"""
BACKWARD = "DROP FUNCTION whole_before(bigint); DROP FUNCTION whole_after(bigint);"


class Migration(migrations.Migration):
    """Which revisions lie within changes that are to be seen as one."""

    dependencies = [("clusterstate", "0052_possible_times_packed")]

    operations = [
        migrations.CreateModel(
            name="AtomicSpan",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("revisions", django.contrib.postgres.fields.ranges.BigIntegerRangeField()),
            ],
            options={
                "db_table": "atomic_span",
                "indexes": [
                    django.contrib.postgres.indexes.GistIndex(
                        fields=["revisions"], name="atomic_span_revisions"
                    )
                ],
            },
        ),
        migrations.RunSQL(FUNCTIONS, BACKWARD),
    ]
