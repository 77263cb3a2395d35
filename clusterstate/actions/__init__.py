"""The only writers: one function for each thing that can happen, one transaction each.

REST, admin, scheduler and controllers all come through here. Time is an argument. Every action
takes revisions and appends to the change log as `clusterstate.changes` says, and announces them
after the commit.
"""
