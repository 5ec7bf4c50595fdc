"""Finds what a workflow must not do: read a clock, draw randomness, do I/O, use asyncio, go by the order of a set.

A workflow is replayed, so the same code must take the same path each time. The source is read as a
tree, and every name in it is looked up where Python would look it up: in the function's own scopes,
its closure, its globals, the builtins. So `from time import time as t` is found, and a function of the
user's own that is called `time` is not. What can't be looked up is given the benefit of the doubt: the
journal's own check finds at run time what slips through here.

Nothing is imported, and no attribute of the user's objects is evaluated. A workflow is judged when it
is decorated, so its module may be half loaded: a function that stands below it is found in the source.
"""
