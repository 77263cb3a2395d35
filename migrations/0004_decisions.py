from django.db import migrations, models


FORWARD = """
CREATE SEQUENCE decision_id AS bigint;
CREATE TABLE decision (
    id bigint NOT NULL DEFAULT nextval('decision_id'),
    at timestamptz NOT NULL,
    pod_id bigint NOT NULL,
    pod_uid uuid NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    class_id bigint NOT NULL,
    snapshot_revision bigint NOT NULL,
    profile text NOT NULL,
    profile_revision bigint NOT NULL,
    seed bigint NOT NULL,
    draw bigint NOT NULL,
    start integer NOT NULL,
    outcome text NOT NULL,
    node_name text COLLATE "C" NOT NULL,
    total bigint NOT NULL,
    margin bigint,
    ties integer NOT NULL,
    node_count integer NOT NULL,
    evaluated integer NOT NULL,
    feasible integer NOT NULL,
    message text NOT NULL,
    body bytea NOT NULL,
    table_digest bytea,
    PRIMARY KEY (id, at),
    CONSTRAINT decision_outcome_known
        CHECK (outcome IN ('scheduled', 'unschedulable', 'error', 'stale'))
) PARTITION BY RANGE (at);
CREATE INDEX decision_pod ON decision (namespace, name, id DESC);
"""
BACKWARD = """
DROP TABLE decision;
DROP SEQUENCE decision_id;
"""


class Migration(migrations.Migration):

    dependencies = [
        ('clusterstate', '0003_evictions'),
    ]

    operations = [
        migrations.CreateModel(
            name='DecisionTable',
            fields=[
                ('digest', models.BinaryField(primary_key=True, serialize=False)),
                ('at', models.DateTimeField(db_index=True)),
                ('body', models.BinaryField()),
            ],
            options={
                'db_table': 'decision_table',
            },
        ),
        migrations.CreateModel(
            name='SchedulerConfiguration',
            fields=[
                ('revision', models.BigAutoField(primary_key=True, serialize=False)),
                ('document', models.TextField()),
                ('at', models.DateTimeField()),
                ('by', models.TextField(default='')),
            ],
            options={
                'db_table': 'scheduler_configuration',
            },
        ),
        # Django cannot say PARTITION BY; actions.decisions makes the partitions and drops them.
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunSQL(FORWARD, BACKWARD)],
            state_operations=[
                migrations.CreateModel(
                    name='Decision',
                    fields=[
                        ('id', models.BigIntegerField(primary_key=True, serialize=False)),
                        ('at', models.DateTimeField()),
                        ('pod_id', models.BigIntegerField()),
                        ('pod_uid', models.UUIDField()),
                        ('namespace', models.TextField(db_collation='C')),
                        ('name', models.TextField(db_collation='C')),
                        ('class_id', models.BigIntegerField()),
                        ('snapshot_revision', models.BigIntegerField()),
                        ('profile', models.TextField()),
                        ('profile_revision', models.BigIntegerField()),
                        ('seed', models.BigIntegerField()),
                        ('draw', models.BigIntegerField()),
                        ('start', models.IntegerField()),
                        ('outcome', models.TextField()),
                        ('node_name', models.TextField(db_collation='C')),
                        ('total', models.BigIntegerField()),
                        ('margin', models.BigIntegerField(null=True)),
                        ('ties', models.IntegerField()),
                        ('node_count', models.IntegerField()),
                        ('evaluated', models.IntegerField()),
                        ('feasible', models.IntegerField()),
                        ('message', models.TextField()),
                        ('body', models.BinaryField()),
                        ('table_digest', models.BinaryField(null=True)),
                    ],
                    options={
                        'db_table': 'decision',
                        'indexes': [models.Index(fields=['namespace', 'name', '-id'], name='decision_pod')],
                        'constraints': [models.CheckConstraint(condition=models.Q(('outcome__in', ['scheduled', 'unschedulable', 'error', 'stale'])), name='decision_outcome_known')],
                    },
                ),
            ],
        ),
    ]
