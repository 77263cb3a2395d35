"""What an operator runs, and what only that needs."""
