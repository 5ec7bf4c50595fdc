"""The event loop that asyncio's functions run on inside a workflow."""
