"""Drills on a whole service: agents lost, labels changed, parts killed.

``python -m tests.drills outage`` is the front (``command``); ``drills`` holds what each one does.
"""
