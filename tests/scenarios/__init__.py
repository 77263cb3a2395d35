"""Scenarios, traces and comparisons, without a database."""
