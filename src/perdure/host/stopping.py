"""What a host that stops leaves in the journals: which steps it has ended itself."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from perdure.core.ids import RunId
from perdure.engine.replay.warm import WarmRun
from perdure.host.body import Body

Advance = Callable[[RunId, Callable[[WarmRun], None]], Awaitable[Any]]


async def note_stopped(bodies: Iterable[Body], advance: Advance, limit_s: float) -> list[Exception]:
    """Commits, run by run: these steps are in doubt, but they did not end their host. Returns what went wrong.

    A body that has not ended, such as a thread, may end the process yet: nothing is said of it.
    """
    ended = [body for body in bodies if body.has_ended]
    noting = [asyncio.ensure_future(advance(each.info.run_id, each.tell_stopped)) for each in ended]
    if not noting:
        return []
    done, late = await asyncio.wait(noting, timeout=limit_s)
    for each in late:
        each.cancel()
    failures = (each.exception() for each in done if not each.cancelled())
    return [failure for failure in failures if isinstance(failure, Exception)]
