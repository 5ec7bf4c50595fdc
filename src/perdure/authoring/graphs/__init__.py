"""Ways to write a graph, and the program that each leads to."""
