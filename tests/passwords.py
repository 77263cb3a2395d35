"""Passwords of people in tests, hashed as the service does but for the number of turns.

A million turns are 0.4 s of CPU, for each of the people whom five hundred tests create.
"""

from django.contrib.auth.hashers import PBKDF2PasswordHasher


class FewTurns(PBKDF2PasswordHasher):
    """The service's hasher; what it writes has the same form."""

    iterations = 2
