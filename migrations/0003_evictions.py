from django.db import migrations, models


FORWARD = """
-- The nodes that evict are few among many with taints; the classes with the field fewer still.
CREATE INDEX taint_no_execute ON taint (node_id) WHERE effect = 'NoExecute';
CREATE INDEX scheduling_class_during_execution ON scheduling_class (id)
    WHERE strpos(spec, '"requiredDuringSchedulingRequiredDuringExecution"') > 0;
"""
BACKWARD = """
DROP INDEX taint_no_execute;
DROP INDEX scheduling_class_during_execution;
"""


class Migration(migrations.Migration):

    dependencies = [
        ('clusterstate', '0002_sequences'),
    ]

    operations = [
        migrations.CreateModel(
            name='ControllerCursor',
            fields=[
                ('name', models.TextField(primary_key=True, serialize=False)),
                ('revision', models.BigIntegerField(default=0)),
                ('state', models.JSONField(default=dict)),
            ],
            options={
                'db_table': 'controller_cursor',
            },
        ),
        migrations.CreateModel(
            name='NodeHeartbeat',
            fields=[
                ('node_name', models.TextField(db_collation='C', primary_key=True, serialize=False)),
                ('sign', models.TextField()),
                ('heard_at', models.DateTimeField(null=True)),
            ],
            options={
                'db_table': 'node_heartbeat',
            },
        ),
        migrations.CreateModel(
            name='EvictionTimer',
            fields=[
                ('pk', models.CompositePrimaryKey('pod_id', 'cause', blank=True, editable=False, primary_key=True, serialize=False)),
                ('pod_id', models.BigIntegerField()),
                ('cause', models.TextField()),
                ('node_name', models.TextField(db_collation='C')),
                ('taint_key', models.TextField(default='')),
                ('taint_effect', models.TextField(default='')),
                ('seconds', models.BigIntegerField(default=0)),
                ('started_at', models.DateTimeField()),
                ('due_at', models.DateTimeField()),
                ('blocked_by', models.TextField(default='')),
            ],
            options={
                'db_table': 'eviction_timer',
                'indexes': [models.Index(fields=['due_at', 'pod_id'], name='eviction_timer_due'), models.Index(fields=['node_name'], name='eviction_timer_node')],
                'constraints': [models.CheckConstraint(condition=models.Q(('cause__in', ['taint', 'requiredDuringExecution'])), name='eviction_timer_cause_known'), models.CheckConstraint(condition=models.Q(('due_at__gte', models.F('started_at'))), name='eviction_timer_due_after_start')],
            },
        ),
        migrations.RunSQL(FORWARD, BACKWARD),
    ]
