"""How hosts of one store detect dead hosts and take over their runs."""
