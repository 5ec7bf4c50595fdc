"""Finds code in a workflow that would not replay: clocks, randomness, I/O, threads, the order of a set.

A host replays a workflow after a crash, so the same code must take the same path each time. The linter parses the
source and resolves every name as Python would: in the function's own scopes, its closure, its globals, the builtins. So
it finds `from time import time as t`, and accepts a function of the user's that is called `time`. It accepts names that
it can't resolve: the replay compares each step with the journal and finds what the linter misses. It follows calls into
functions and methods of the user's modules, and judges installed modules by name.

The linter imports nothing and evaluates no attribute of the user's objects. It runs when a workflow is decorated, so
the module may be half loaded: functions defined below the workflow are found in the source.
"""
