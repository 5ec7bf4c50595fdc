"""`perdure op`: inspects and ends operations of several processes."""
