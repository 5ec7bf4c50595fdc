"""Event buses: which events they get, in which form, and when one that failed is tried again."""
