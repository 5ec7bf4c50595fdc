"""The explorations of `make test`: what each mode adds to the others, and nothing twice."""

from collections.abc import Callable, Collection
from typing import Any

from perdure.authoring.program import ProgramCall
from perdure.testing.explorer import Exploration
from perdure.testing.workflows import Check, Race, explore_workflow

REPLAYED = "always replayed"

WITH_FAULTS = ("warm", "stepwise")
"""Modes in which `make test` explores faults.

"Always replayed" adds no single fault to these: the explorer evicts the run at every wait of the warm mode, and a host
that dies replays it. Deep tests explore two faults there, too.
"""


async def explore_one_fault(
    make_call: Callable[[], ProgramCall[Any]],
    *,
    modes: Collection[str] = WITH_FAULTS,
    check: Check | Race | str | None = None,
    **options: Any,
) -> Exploration:
    """Explore every schedule of one fault. Always replayed, without faults, the run must end as it does warm."""
    await explore_workflow(
        make_call, modes=("warm", REPLAYED), max_faults=0, check=check, **options
    )
    return await explore_workflow(make_call, modes=tuple(modes), check=check, **options)
