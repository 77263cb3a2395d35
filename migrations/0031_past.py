from django.db import migrations, models

# What is packed is not compressed again, and lies out of line: looking for the few blocks that an
# object is in reads a hundred bytes of each.
FORWARD = """
CREATE SEQUENCE past_block_id AS bigint;
CREATE TABLE past_block (
    id bigint NOT NULL DEFAULT nextval('past_block_id'),
    at timestamptz NOT NULL,
    chunk bigint NOT NULL,
    kind smallint NOT NULL,
    entries integer NOT NULL,
    first_from bigint,
    first_revision bigint NOT NULL,
    last_revision bigint NOT NULL,
    first_key text COLLATE "C" NOT NULL,
    last_key text COLLATE "C" NOT NULL,
    marks bytea NOT NULL,
    index bytea NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (id, at)
) PARTITION BY RANGE (at);
ALTER TABLE past_block
    ALTER marks SET STORAGE EXTERNAL, ALTER index SET STORAGE EXTERNAL,
    ALTER body SET STORAGE EXTERNAL;
"""
BACKWARD = """
DROP TABLE past_block;
DROP SEQUENCE past_block_id;
"""


class Migration(migrations.Migration):
    dependencies = [("clusterstate", "0030_nominations_logged")]
    operations = [
        # Django cannot say PARTITION BY; actions.past makes the partitions and drops them.
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunSQL(FORWARD, BACKWARD)],
            state_operations=[
                migrations.CreateModel(
                    name="PastBlock",
                    fields=[
                        ("id", models.BigIntegerField(primary_key=True, serialize=False)),
                        ("at", models.DateTimeField()),
                        ("chunk", models.BigIntegerField()),
                        ("kind", models.SmallIntegerField()),
                        ("entries", models.IntegerField()),
                        ("first_from", models.BigIntegerField(null=True)),
                        ("first_revision", models.BigIntegerField()),
                        ("last_revision", models.BigIntegerField()),
                        ("first_key", models.TextField(db_collation="C")),
                        ("last_key", models.TextField(db_collation="C")),
                        ("marks", models.BinaryField()),
                        ("index", models.BinaryField()),
                        ("body", models.BinaryField()),
                    ],
                    options={"db_table": "past_block"},
                ),
            ],
        ),
        migrations.CreateModel(
            name="PastChunk",
            fields=[
                ("revision", models.BigIntegerField(primary_key=True, serialize=False)),
                ("first_at", models.DateTimeField()),
                ("changes", models.IntegerField()),
                ("raw_bytes", models.BigIntegerField()),
                ("stored_bytes", models.BigIntegerField()),
                ("moments", models.BinaryField()),
            ],
            options={"db_table": "past_chunk"},
        ),
        migrations.CreateModel(
            name="PastHead",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("since_revision", models.BigIntegerField()),
                ("since_at", models.DateTimeField()),
                ("packed_revision", models.BigIntegerField()),
            ],
            options={
                "db_table": "past_head",
                "constraints": [
                    models.CheckConstraint(condition=models.Q(("pk", 1)), name="past_head_one_row")
                ],
            },
        ),
    ]
