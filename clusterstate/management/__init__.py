"""What an operator runs (``commands``), and what only that needs.

``copies`` compares what the database says twice.
"""
