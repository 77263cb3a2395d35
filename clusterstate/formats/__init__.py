"""How the admin writes times: the same everywhere, in the order in which they sort.

Django looks for a package of each language; there is ``en`` alone.
"""
