"""CEL for devices: selectors compiled once, evaluated on plain values with cel-go's rules.

``devices`` is the entry: it compiles a selector, estimates its highest cost, and evaluates it on a
device. ``syntax`` calls the library to parse and type-check an expression, and reads the resulting
tree; ``functions`` has the functions, their effects and the cost of a call; ``evaluation`` makes
closures of a tree; ``estimates`` computes the static cost.

The library (Google's C++ runtime) does parsing, macros and types, with cel-go's messages. It does
not evaluate: it counts no cost and returns a failed evaluation as a value.
"""
