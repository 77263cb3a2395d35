from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('clusterstate', '0047_possible_times'),
    ]

    operations = [
        migrations.CreateModel(
            name='ConfigurationUse',
            fields=[
                ('id', models.SmallIntegerField(primary_key=True, serialize=False)),
                ('revision', models.BigIntegerField()),
                ('wanted', models.BigIntegerField()),
                ('problems', models.JSONField()),
                ('is_usable', models.BooleanField()),
                ('at', models.DateTimeField()),
            ],
            options={
                'db_table': 'configuration_use',
            },
        ),
    ]
