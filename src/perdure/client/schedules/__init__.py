"""Schedules as callers see them."""
