"""Signing in, and a person's own account.

::

    signing    signing in and out, with one-time codes
    company    signing in with the company's accounts
    account    a person's own account, and one-time codes as a second factor
"""
