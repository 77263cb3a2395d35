"""The loops of ``engine.plain`` and ``engine.runs``, compiled by Numba.

    caching   how a loop is compiled, and where its code is kept
    shared    what both kinds of loops do alike: fit, score, pick among the best, account
    plain     pods that only ask for resources, on blocks of 64 rows
    grouped   pods that look at pods as well, on groups and blocks of 128 rows
    rows      why rows reject a pod, and who would have to leave them: not compiled on import

Importing Numba takes 0.2 s and 70 MB, so only the scheduling worker does (``class_cache.warm``).
Code is kept in ``__pycache__`` beside the sources, or in NUMBA_CACHE_DIR; with NUMBA_DISABLE_JIT=1
the same functions run as plain Python. They read and write nothing but the arrays they are given.

Functions are handed tuples of arrays where it costs nothing. Each array of a tuple is handed over
on its own, so what loops call for every row or group gets few of them, or is inlined.
"""
