from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('clusterstate', '0008_reservations'),
    ]

    operations = [
        migrations.AddField(
            model_name='evictiontimer',
            name='landing',
            field=models.JSONField(null=True),
        ),
    ]
