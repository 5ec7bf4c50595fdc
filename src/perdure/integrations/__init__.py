"""Frameworks that run inside workflows. Each needs its extra, such as `perdure[pydantic-ai]`."""
