"""Streams of chunks: which attempt wrote a chunk, whether it counts, and what readers receive."""
