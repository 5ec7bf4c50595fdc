"""Fixtures for your own tests. pytest finds them when perdure is installed."""

from collections.abc import Callable

import pytest

from perdure.testing.explorer import Exploration
from perdure.testing.workflows import explore_workflow


@pytest.fixture
def explore_crashes() -> Callable[..., object]:
    """The crash explorer: `await explore_crashes(lambda: checkout(order))` inside an async test."""
    return explore_workflow


__all__ = ["Exploration", "explore_crashes"]
