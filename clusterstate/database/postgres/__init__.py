"""Django's backend for PostgreSQL, with sessions that notice when their server falls silent.

``settings.DATABASES`` names this package; what it adds is in ``base``.
"""
