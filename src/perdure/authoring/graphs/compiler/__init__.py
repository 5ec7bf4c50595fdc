"""The compiler behind `@graph`: turns the source of an async function into nodes and edges.

One statement passes `function.py`, `statements.py`, `awaits.py` and `graph_writer.py`. `planes.py` and `flow.py` then
process the whole graph.
"""
