"""The columns of the loops' arrays, and their sizes.

Importing this loads no Numba: the modules that fill the arrays import it as well.
"""

LOW = -(2**30)
"""Below every score: marks rows and groups that are not feasible."""
BLOCK = 64
"""This many rows are scored together, in vectors."""
FIELDS = 9
"""This many numbers of each row are kept for scoring; see ``scoring``."""
KEPT = 10
"""This many of the best rows are noted."""
KINDS = 16
"""This many rejections by NodeResourcesFit are told apart."""
TAKEN = 2**30
"""Stands for the bits of NodeResourcesFit on a row that a counter rejects before that plugin."""
DYNAMIC = 4
"""This many plugins may score by group."""
DENSE = 64
"""Up to this many groups, each group's entry has a place of its own; see ``entries``."""
EXCEPTIONS = 192
"""This many rows of a class may differ from their group, or the class needs a line of its own."""

TOGETHER = 8
"""This many lines are scored together: their totals of 50,000 nodes fit the second cache."""
ONCE = 1024
"""This many lines, the first ones, are used once; as many pods are decided for in a run."""

# Columns of ``arguments.Lines.scored``.
COLUMN, WEIGHT, AMOUNT = range(3)
SCORED_COLUMNS = 3
# Columns of ``terms.Terms.form``.
GROUPS, RULES, WATCHES, PLUGINS, AFFINITY_FIRST, SHUT_FIRST = range(6)
FORM = 6
# Columns of ``terms.Terms.rules``; kinds are ``framework.terms.Kind``.
KIND, COUNTER, WATCH, MATCHES_SELF, MAX_SKEW, FROM_ZERO, BY_SIZE, ALL_KEYS = range(8)
RULE = 8
NEAR, ANTI, EXISTING, SCORED, HARD, SOFT, UNTOUCHED = range(7)
# Columns of ``terms.Counts.counters``.
OFFSET, BY_ROW, PLACES, TOTAL, LOWEST, AT_LOWEST, LENGTH = range(7)
COUNTER_COLUMNS = 7
# Where a plugin's scores come from: the first column of ``Programs.sheet``.
SCALED, REVERSED, AFFINITY, SPREAD = range(4)
# Why a group is refused. From SHUT on: rejections by filters of nodes alone that come after
# NodeResourcesFit.
SKEWED, UNLABELLED, NOT_NEAR, TOO_NEAR, UNWELCOME, SHUT = range(6)
MOST_SHUT = 3
REFUSALS = SHUT + MOST_SHUT
# Why the loop ends.
FINISHED, OTHER_GROUPS, NOWHERE, MANY_KINDS, STALE, MORE_GROUPS, ANEW = range(7)
