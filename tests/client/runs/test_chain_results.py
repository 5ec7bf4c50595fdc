"""The result of a chain has the type of its last run's result, not of the first run's."""

from dataclasses import dataclass

import perdure
from perdure import Engine, Signal, workflow

go = Signal("chain-results.go", int)


@dataclass
class Balance:
    cents: int


@workflow(name="chain-results.account", version="1")
async def account_before(cents: int) -> int:
    await go.receive()
    return await perdure.continue_as_new(account(cents))


@workflow(name="chain-results.account", version="2")
async def account(cents: int) -> Balance:
    return Balance(cents)


async def test_a_result_is_read_as_the_last_run_of_the_chain_returns_it(engine: Engine) -> None:
    started = await engine.start(account_before(5), key="k")
    await started.signal(go, 1)
    result: object = await started.result(60)
    assert result == Balance(5)
    again = await engine.start(account(5), key="k")
    for run in (engine.handle(started.run_id), again, *map(engine.handle, await started.runs())):
        assert await run.result(60) == Balance(5)
