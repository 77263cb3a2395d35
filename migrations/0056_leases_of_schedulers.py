from django.db import migrations, models


class Migration(migrations.Migration):
    """Until when each scheduler counts as awake (`actions.scheduler.leases`)."""

    dependencies = [("clusterstate", "0055_reaching_classes")]

    operations = [
        migrations.AddField(
            model_name="scheduler", name="awake_until", field=models.DateTimeField(null=True)
        ),
    ]
