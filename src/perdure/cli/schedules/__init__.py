"""`perdure schedule`: runs that start by themselves."""
