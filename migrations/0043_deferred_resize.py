from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('clusterstate', '0042_early_attempts'),
    ]

    operations = [
        migrations.CreateModel(
            name='DeferredResize',
            fields=[
                ('pod', models.OneToOneField(db_constraint=False, on_delete=models.deletion.DO_NOTHING, primary_key=True, serialize=False, to='clusterstate.pod')),
                ('since', models.DateTimeField()),
            ],
            options={
                'db_table': 'deferred_resize',
            },
        ),
    ]
