"""The compiler behind `@graph`: the source of a plain async function, as nodes and edges.

To follow one statement: `function.py`, `statements.py`, `awaits.py`, `drawing.py`; then `planes.py` and `flow.py`,
which see the whole.
"""
