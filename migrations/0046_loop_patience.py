from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('clusterstate', '0045_revisions_marker'),
    ]

    operations = [
        migrations.CreateModel(
            name='LoopPatience',
            fields=[
                ('name', models.TextField(db_collation='C', primary_key=True, serialize=False)),
                ('factor', models.FloatField()),
                ('at', models.DateTimeField()),
            ],
            options={
                'db_table': 'loop_patience',
            },
        ),
    ]
