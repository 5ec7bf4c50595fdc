import asyncio
from typing import Any

from perdure import Engine, Settings
from tests.authoring.graphs.corpus import CASES, SIGNALS, Case, Outcome, expected
from tests.authoring.graphs.interpreter import plain
from tests.client.engines import opened


async def outcome(engine: Engine, case: Case) -> Outcome:
    handle = await engine.start(case.program(**case.kwargs))
    for name, value in case.signals:
        await handle.signal(SIGNALS[name], value)
    try:
        return Outcome(plain(await handle.result()))
    except Exception as error:  # whatever the program raises
        kind = type(error)
        return Outcome(None, f"{kind.__module__}:{kind.__qualname__}", str(error))


async def test_compiled_functions_do_what_the_functions_do(
    place: tuple[str, Settings | None],
) -> None:
    wrong: list[tuple[str, Any, Any]] = []
    async with opened(*place) as engine, asyncio.timeout(60):
        for case in CASES:
            got, wanted = await outcome(engine, case), expected(case)
            if got != wanted:
                wrong.append((case.id, got, wanted))
    assert wrong == []
