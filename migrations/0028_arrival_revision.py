from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('clusterstate', '0027_actors'),
    ]

    operations = [
        migrations.AddField(
            model_name='pod',
            name='arrival_revision',
            field=models.BigIntegerField(null=True),
        ),
    ]
