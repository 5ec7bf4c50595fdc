"""Streams of chunks: who wrote what, which of it counts, and what a reader is to be told."""
