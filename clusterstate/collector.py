"""The garbage collector of processes that live long and make many small objects."""

import gc


def calm() -> None:
    """Take all there is for permanent, and look for cycles rarely from now on.

    As it comes, Python looks through every object each time a few thousand new ones have survived:
    tens of milliseconds in a process that holds a cluster, and half of the time of one that decides
    for thousands of pods. To be called when the large things are loaded, again when they are
    replaced. Takes one full collection.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
