"""The crash explorer as a pytest fixture. pytest loads it if perdure is installed."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from perdure.authoring.program import ProgramCall
from perdure.testing.explorer import Exploration
from perdure.testing.workflows import explore_workflow


class CrashExplorer:
    """Explores your workflows and graphs; the options are those of `perdure.testing.explore_workflow`."""

    async def explore(
        self, make_call: Callable[[], ProgramCall[Any]], **options: Any
    ) -> Exploration:
        """For async tests."""
        return await explore_workflow(make_call, **options)

    def check(self, make_call: Callable[[], ProgramCall[Any]], **options: Any) -> Exploration:
        """For sync tests."""
        return asyncio.run(explore_workflow(make_call, **options))


@pytest.fixture
def crash_explorer() -> CrashExplorer:
    """Runs a workflow or graph under every schedule of faults, and checks it after each."""
    return CrashExplorer()
