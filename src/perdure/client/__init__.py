"""Engines and handles: how a program starts runs, talks to them, and hears from them."""
