"""The fast path: runs of pods decided in one compiled loop, with the reference path's results.

A *class* is everything in a pod that influences where it goes. Three things are made of a class,
and shared by all classes for which they are equal:

* a *sheet*: what plugins say about nodes alone: a verdict, a group and a score for each row;
* a *program*: the class's rules about other pods, as numbers for the loop;
* a *request*: the amounts that the class asks for.

A pod takes this path if

* the compiled loops are loaded (``fast_lane.enabled``);
* its profile has only plugins that the loop covers, and scores all nodes (``lane_profile``);
* its class compiles: each plugin names what it looks at or states its rule about other pods as
  terms, and the numbers fit into the arrays (``compiling``);
* it is not nominated itself, and no filter of it counts nominated pods (``looking_ahead``).

Any other pod takes the reference path. ``engine.deciding`` chooses, run by run.

A *line* is an array of total scores by row, for all classes with the same sheet and request. A
*run* is a stretch of pods that the loop decides in one call.

::

    fast_lane                     decides runs of pods
    lane_profile                  which parts of a profile the fast path covers
    looking_ahead                 which of the next pods a run takes in
    compiling                     makes a class's sheet, program and request
    sheets                        sheets, brought up to date as nodes change
    statements                    what plugins state about other pods, as terms
    programs, program_forms       programs; what programs of like classes share
    counter_columns               copies of the counts that terms look at
    requests, lines               requests as numbers; lines of totals
    run                           the decisions of a run, as columns
"""
