"""`perdure runs trace`: the spans of a run, as a collector takes them."""

import asyncio
from importlib.metadata import version

from perdure.cli.front_end import front_end
from perdure.cli.output import print_json
from perdure.cli.store_setting import StoreOption
from perdure.core.runs.tracing import TraceSpan, otlp


def trace(run: str, /, *, store: StoreOption = None) -> int:
    """Print the spans of a run and its attempts as OTLP JSON, read from its journal.

    The ids are those that `perdure.integrations.otel` reports while the run executes.

    Parameters
    ----------
    run
        The id of a run.
    """
    print_json(otlp(asyncio.run(_spans(run, store)), version("perdure")))
    return 0


async def _spans(run: str, store: str | None) -> list[TraceSpan]:
    async with front_end(store) as engine:
        return await engine.handle(run).trace()
