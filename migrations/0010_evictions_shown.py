from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ('clusterstate', '0009_landings'),
    ]

    operations = [
        migrations.CreateModel(
            name='Eviction',
            fields=[
            ],
            options={
                'proxy': True,
                'default_permissions': (),
                'indexes': [],
                'constraints': [],
            },
            bases=('clusterstate.pod',),
        ),
    ]
