"""Records in the journals which steps a stopping host cancelled itself."""

import asyncio
from collections.abc import Iterable

from perdure.host.tasks.attempt import Attempt
from perdure.host.tasks.slots import Advance


async def note_stopped(
    attempts: Iterable[Attempt], advance: Advance, limit_s: float
) -> list[Exception]:
    """Commits, run by run: these steps are in doubt, but their host did not die of them. Returns the errors.

    Skips attempts that have not ended, such as those with a running thread: they may yet kill the process.
    """
    ended = [attempt for attempt in attempts if attempt.has_ended]
    noting = [asyncio.ensure_future(advance(each.info.run_id, each.mark_stopped)) for each in ended]
    if not noting:
        return []
    done, late = await asyncio.wait(noting, timeout=limit_s)
    for each in late:
        each.cancel()
    failures = (each.exception() for each in done if not each.cancelled())
    return [failure for failure in failures if isinstance(failure, Exception)]
