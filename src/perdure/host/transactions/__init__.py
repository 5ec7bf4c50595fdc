"""Transactions that commit a user's own rows together with what the engine writes."""
