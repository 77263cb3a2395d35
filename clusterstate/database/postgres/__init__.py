"""Django's backend for PostgreSQL, with sessions that notice a server that has fallen silent.

``settings.DATABASES`` names this package; ``base`` has the difference to Django's backend.
"""
