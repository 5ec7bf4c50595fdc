"""Rules for valid graphs, by subject. Each module has a function `problems`, which yields all problems it finds."""
