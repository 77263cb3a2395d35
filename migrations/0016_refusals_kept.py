from django.db import migrations, models

# 0 in the rows that there are: how far their refusal had read is not known, and they are tried.


class Migration(migrations.Migration):

    dependencies = [
        ('clusterstate', '0015_loop_progress'),
    ]

    operations = [
        migrations.AddField(
            model_name='pendingpod',
            name='refused_revision',
            field=models.BigIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name='pendingpod',
            name='refused_under',
            field=models.BigIntegerField(db_default=0, default=0),
        ),
    ]
