"""CEL for devices: selectors compiled once, evaluated on plain values with cel-go's rules.

``devices`` is what others use: it compiles a selector, estimates what it may cost at most, and asks
it of a device. ``syntax`` has the library parse and type-check an expression and reads the tree
that comes back; ``functions`` says which functions there are, what they do and what a call costs;
``evaluation`` makes closures of a tree; ``estimates`` computes the static cost.

The library (Google's C++ runtime) answers for parsing, macros and types, with cel-go's messages.
It does not evaluate: it counts no cost and gives a failed evaluation back as a value.
"""
