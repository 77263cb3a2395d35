import django.contrib.postgres.fields
from django.db import migrations, models


class Migration(migrations.Migration):
    """Several schedulers: a row for each batch of binds, instead of one for each node and counter.

    `node_binder` stays for schedulers of the version before, which write it until they are
    replaced.
    """

    dependencies = [("clusterstate", "0058_tables_keep_their_pages")]

    operations = [
        migrations.DeleteModel(name="CounterBinder"),
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
        migrations.RunSQL(
            "ALTER TABLE bind_batch SET (vacuum_truncate = off)", migrations.RunSQL.noop
        ),
    ]
