"""Pure decisions about hosts: which are dead, how many of their runs a host takes over, clock offsets."""
