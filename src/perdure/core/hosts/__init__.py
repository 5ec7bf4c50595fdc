"""Pure decisions of hosts about each other: who is gone, who takes how many of its runs, who may begin a body."""
