"""Rows of the store as plain values, and their decoding."""
