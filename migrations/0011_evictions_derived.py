import django.contrib.postgres.fields.ranges
from django.db import migrations

# Null in every row that there is, so no table is written again.


class Migration(migrations.Migration):

    dependencies = [
        ('clusterstate', '0010_evictions_shown'),
    ]

    operations = [
        migrations.AddField(
            model_name='pod',
            name='eviction',
            field=django.contrib.postgres.fields.ranges.DateTimeRangeField(null=True),
        ),
        migrations.AddField(
            model_name='change',
            name='eviction',
            field=django.contrib.postgres.fields.ranges.DateTimeRangeField(null=True),
        ),
        migrations.AddField(
            model_name='change',
            name='previous_eviction',
            field=django.contrib.postgres.fields.ranges.DateTimeRangeField(null=True),
        ),
    ]
