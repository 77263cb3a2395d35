import pytest
from django.db import connection


@pytest.mark.django_db
def test_the_test_database_is_a_throw_away_postgres_18() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('server_version_num')::int, current_database()")
        version, name = cursor.fetchone()
    assert version >= 180000
    assert name.startswith("test_")


def test_redis_answers(redis_client) -> None:
    redis_client.set("key", "value")
    assert redis_client.get("key") == b"value"
