"""`perdure replay`: walks through a recorded run on the registered code, under a debugger if wanted."""
