"""Management commands that decide: they need the engine, which clusterstate does not know."""
