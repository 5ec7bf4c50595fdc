"""Hosts: processes that own runs and advance them. The clock lives here."""
