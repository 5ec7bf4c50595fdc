"""Graph runs: the machine that executes a graph; its activities, their answers, its end."""
