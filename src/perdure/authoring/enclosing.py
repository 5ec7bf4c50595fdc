"""Steps for integrations: a function made inside the workflow, executed as a task.

The function may hold what can't be stored, such as a client. It is not looked up by name: a replay makes it again.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from typing import Any, NamedTuple

from perdure.authoring.call import Call
from perdure.authoring.context import TASK, WORKFLOW
from perdure.authoring.durations import Duration
from perdure.authoring.retry import ONCE, Retry
from perdure.authoring.task import task


class StepOptions(NamedTuple):
    """How often a step is tried, and how long each attempt may take."""

    retry: Retry = ONCE
    timeout: Duration | None = None


ONE_TRY = StepOptions()


@task(name="enclosed step")
async def _enclosed() -> Any:
    raise NotImplementedError


def enclosed_step(
    name: str, body: Callable[[], Awaitable[object]], options: StepOptions = ONE_TRY
) -> Call[Any]:
    """A call that executes `body` as a step called `name`. Its result must have a JSON form.

    The body sees the context variables of the code that calls this, and is a task for Perdure's verbs.
    """
    context = copy_context()

    async def run() -> Any:
        context.run(WORKFLOW.set, None)
        context.run(TASK.set, TASK.get())
        return await asyncio.get_running_loop().create_task(_awaited(body), context=context.copy())

    return _enclosed.tuned(*options).enclosing(run, name)()


async def _awaited(body: Callable[[], Awaitable[object]]) -> object:
    return await body()
