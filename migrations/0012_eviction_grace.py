from django.db import migrations, models

# Null in the timers that there are: their pods' specs say it.


class Migration(migrations.Migration):

    dependencies = [
        ('clusterstate', '0011_evictions_derived'),
    ]

    operations = [
        migrations.AddField(
            model_name='evictiontimer',
            name='grace_seconds',
            field=models.BigIntegerField(null=True),
        ),
    ]
