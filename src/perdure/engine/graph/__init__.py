"""Graph runs: the machine that executes one."""
