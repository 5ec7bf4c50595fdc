"""Graphs: the checked model, its lowering to vertices, and the transition after each step."""
