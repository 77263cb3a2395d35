from django.db import migrations, models


class Migration(migrations.Migration):
    """Pods that run already have none until their status is written again: their binding counts."""

    dependencies = [("clusterstate", "0048_configuration_use")]

    operations = [
        migrations.AddField("pod", "started_at", models.DateTimeField(null=True)),
    ]
