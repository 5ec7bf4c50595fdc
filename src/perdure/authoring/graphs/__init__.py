"""Ways to write a graph: as YAML, and by a builder. All lead to the one model, and are checked by the same rules."""
