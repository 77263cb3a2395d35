import django.db.models.deletion
from django.db import migrations, models

# Room for one more version of each row on its own page: with no index on what an eviction writes,
# the indexes then stay as they are.
FORWARD = """
ALTER TABLE pod SET (fillfactor = 50);
INSERT INTO terminating_pod (pod_id, deletion_at)
SELECT id, deletion_at FROM pod WHERE deletion_at IS NOT NULL;
"""
BACKWARD = """
ALTER TABLE pod SET (fillfactor = 70);
"""


class Migration(migrations.Migration):

    dependencies = [
        ('clusterstate', '0006_execution_timers'),
    ]

    operations = [
        migrations.CreateModel(
            name='TerminatingPod',
            fields=[
                ('pod', models.OneToOneField(db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, primary_key=True, serialize=False, to='clusterstate.pod')),
                ('deletion_at', models.DateTimeField(db_index=True)),
            ],
            options={
                'db_table': 'terminating_pod',
            },
        ),
        migrations.RunSQL(FORWARD, BACKWARD),
        migrations.RemoveIndex(
            model_name='pod',
            name='pod_deletion_at',
        ),
    ]
