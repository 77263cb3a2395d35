from django.db import migrations, models

# Null in the pods that there are: their condition or their creation tells since when they count.


class Migration(migrations.Migration):

    dependencies = [
        ('clusterstate', '0012_eviction_grace'),
    ]

    operations = [
        migrations.AddField(
            model_name='pod',
            name='bound_at',
            field=models.DateTimeField(null=True),
        ),
    ]
