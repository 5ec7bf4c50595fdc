"""Perdure beside other libraries. Each module needs an extra of its own."""
