from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('clusterstate', '0007_terminating_pods'),
    ]

    operations = [
        migrations.CreateModel(
            name='Reservation',
            fields=[
                ('pod_id', models.BigIntegerField(primary_key=True, serialize=False)),
                ('node_name', models.TextField(db_collation='C')),
                ('profile', models.TextField()),
                ('profile_revision', models.BigIntegerField()),
                ('step', models.TextField()),
                ('since', models.DateTimeField()),
                ('waits', models.JSONField(default=dict)),
                ('due_at', models.DateTimeField(null=True)),
                ('notes', models.JSONField(default=dict)),
                ('plugin', models.TextField(default='')),
                ('code', models.SmallIntegerField(default=0)),
                ('message', models.TextField(default='')),
            ],
            options={
                'db_table': 'reservation',
                'constraints': [models.CheckConstraint(condition=models.Q(('step__in', ['waiting', 'binding', 'ready', 'bound', 'refused'])), name='reservation_step_known')],
            },
        ),
    ]
