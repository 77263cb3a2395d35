"""Commands for operators (``commands``), and code that only these use.

``copies`` compares redundant data in the database.
"""
