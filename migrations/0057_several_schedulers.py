import django.contrib.postgres.fields
from django.db import migrations, models

# Before anything of `binder`: whoever stores a class may wait for a bind, which reads `binder`.
TRIGGER = """
CREATE TRIGGER scheduling_class_gone AFTER DELETE ON scheduling_class FOR EACH ROW
WHEN (class_reaches(OLD.spec)) EXECUTE FUNCTION note_reach();
"""
# Row 2 was one number for all pods with rules about others. A scheduler of the version before finds
# no such row: it binds none of these pods beside schedulers of this version.
FORWARD = "DELETE FROM binder WHERE id = 2"
BACKWARD = """
INSERT INTO binder (id, holder, revision) SELECT 2, '', revision FROM binder WHERE id = 1;
"""


class Migration(migrations.Migration):
    """Several schedulers: the nodes and counters of each batch of binds, and slots that moved.

    `node_binder` stays for schedulers of the version before, which write it until they are
    replaced.
    """

    dependencies = [("clusterstate", "0056_leases_of_schedulers")]

    operations = [
        migrations.RunSQL(TRIGGER, "DROP TRIGGER scheduling_class_gone ON scheduling_class"),
        migrations.RemoveConstraint(model_name="binder", name="binder_three_rows"),
        migrations.CreateModel(
            name="BindBatch",
            fields=[
                ("revision", models.BigIntegerField(primary_key=True, serialize=False)),
                ("holder", models.TextField()),
                (
                    "nodes",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(), size=None
                    ),
                ),
                (
                    "counters",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.IntegerField(), size=None
                    ),
                ),
            ],
            options={"db_table": "bind_batch"},
        ),
        migrations.CreateModel(
            name="MovedSlot",
            fields=[
                ("slot", models.SmallIntegerField(primary_key=True, serialize=False)),
                ("scheduler", models.SmallIntegerField()),
            ],
            options={"db_table": "moved_slot"},
        ),
        migrations.RunSQL(FORWARD, BACKWARD),
        migrations.AddConstraint(
            model_name="binder",
            constraint=models.CheckConstraint(
                condition=models.Q(("pk__in", [1, 3])), name="binder_two_rows"
            ),
        ),
    ]
