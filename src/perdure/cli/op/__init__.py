"""`perdure op`: operations of several processes, seen and ended from outside."""
