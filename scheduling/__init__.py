"""Decide and react: knows ``clusterstate``, never the reverse."""
