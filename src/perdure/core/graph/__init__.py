"""Graphs: programs that are data. The checked model, its lowering, and what follows from each step."""
