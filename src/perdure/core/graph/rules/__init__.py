"""The rules that a graph keeps, by subject. Each module has `problems`, from a survey to all that it finds."""
