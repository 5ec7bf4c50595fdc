"""`perdure replay`: walks through a recorded run on the code at hand, under a debugger if wanted."""
