"""The compiled loop of ``engine.fast.fast_lane`` and the functions that it calls (Numba).

    caching   how a loop is compiled, and where its code is kept
    layout    what the arrays' columns mean; ``arguments``: the loops' tuples of arrays. Importing
              these, ``rows`` or ``row_arguments`` loads no Numba
    arithmetic  how the formulas of ``framework.formulas`` are compiled
    shared    single rows: whether a pod fits, what the row scores, which one is picked
    scoring   scores of nodes, in blocks of 64 rows
    terms     rules about other pods, judged and scored for groups of rows
    programs  what the terms of a class add to its rows; counts follow placed pods
    entries   the highest totals of groups, block by block
    anew      lines scored anew, several together
    loop      runs of pods decided with all of these
    rows      why rows reject a pod, and its victims on them: not compiled on import
    row_arguments  the same for ``rows``: its tuples of arrays, their columns, its codes

Importing Numba takes 0.2 s and 70 MB, so only the scheduling worker does (``deciding.warm``). Code
is kept in ``__pycache__`` beside the sources, or in NUMBA_CACHE_DIR; with NUMBA_DISABLE_JIT=1 the
same functions run as plain Python. They read and write nothing but the arrays they are given.

A function takes tuples of arrays where that costs nothing. Numba passes each array of a tuple by
itself, so functions that are called for every row or group take few arrays, or are inlined.
"""
