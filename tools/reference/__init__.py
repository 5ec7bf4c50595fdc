"""Generates the pages of docs/reference that state what the code says, so that they can't drift from it."""
