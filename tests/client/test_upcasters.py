"""Runs that were started by older code, and go on with newer code that stores other shapes."""

from dataclasses import dataclass, make_dataclass
from typing import Any

import pytest

from perdure import Engine, RunDiverged, RunStatus, Settings, Signal, task, upcaster, workflow
from tests.client.engines import AT_ONCE, opened, until_status


@dataclass
class Money:
    cents: int
    currency: str


def old_code() -> Any:
    """A shop that knows one currency."""
    old_money = make_dataclass("OldMoney", [("euros", int)])
    go: Signal[Any] = Signal("upcasters.go", old_money)

    @task(name="upcasters.priced")
    async def priced(items: list[old_money]) -> list[old_money]:  # type: ignore[valid-type]
        return items

    @workflow(name="upcasters.shop")
    async def shop(prices: dict[str, old_money], given: list[Any]) -> int:  # type: ignore[valid-type]
        items = await priced(list(prices.values()))
        paid = await go.receive()
        return int(sum(each.euros for each in await priced([*items, paid])))

    return shop, old_money, go


def new_code() -> Any:
    """The same shop, with cents and currencies."""
    go = Signal("upcasters.go", Money)

    @task(name="upcasters.priced")
    async def priced(items: list[Money]) -> list[Money]:
        return items

    @workflow(name="upcasters.shop")
    async def shop(prices: dict[str, Money], given: list[Any]) -> int:
        items = await priced(list(prices.values()))
        paid = await go.receive()
        return sum(each.cents for each in await priced([*items, paid]))

    return shop, go


def in_cents(old: dict[str, Any]) -> dict[str, Any]:
    return {"cents": old["euros"] * 100, "currency": "EUR"}


async def started_by_old_code(url: str) -> str:
    shop, old_money, _ = old_code()
    async with Engine(url, settings=AT_ONCE) as engine:
        run = await engine.start(shop({"a": old_money(1), "b": old_money(2)}, []), key="shop")
        await until_status(run, RunStatus.BLOCKED)
        return run.run_id


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """No upcaster of a test outlives it."""
    monkeypatch.setattr("perdure.authoring.upcaster._known", {})


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize("settings", [None, Settings(warm_runs=0, stepwise=True)])
async def test_a_run_of_old_code_ends_with_new_code(
    shared_url: str, settings: Settings | None
) -> None:
    run_id = await started_by_old_code(shared_url)
    _, go = new_code()
    upcaster(Money)(in_cents)
    async with opened(shared_url, settings) as engine:
        run = engine.handle(run_id)
        await until_status(run, RunStatus.BLOCKED)
        await run.signal(go, Money(450, "EUR"))
        assert await run.result(10) == 750


@pytest.mark.usefixtures("known")
async def test_the_same_key_finds_the_run_of_old_code(shared_url: str) -> None:
    run_id = await started_by_old_code(shared_url)
    shop, go = new_code()
    upcaster(Money)(in_cents)
    async with opened(shared_url) as engine:
        prices = {"a": Money(100, "EUR"), "b": Money(200, "EUR")}
        run = await engine.start(shop(prices, []), key="shop")
        assert run.run_id == run_id
        await run.signal(go, Money(0, "EUR"))
        assert await run.result(10) == 300


@pytest.mark.usefixtures("known")
async def test_a_signal_of_old_code_is_read_by_new_code(shared_url: str) -> None:
    shop, old_money, go = old_code()
    async with Engine(shared_url) as engine:
        run = await engine.start(shop({}, []))
        await until_status(run, RunStatus.BLOCKED)
        run_id = run.run_id
    new_code()
    upcaster(Money)(in_cents)
    async with opened(shared_url) as engine:
        await engine.handle(run_id).signal(go, old_money(4))
        assert await engine.handle(run_id).result(10) == 400
    assert shop.name == "upcasters.shop"


@pytest.mark.usefixtures("known")
async def test_without_an_upcaster_the_run_is_parked_until_there_is_one(shared_url: str) -> None:
    run_id = await started_by_old_code(shared_url)
    _, go = new_code()
    async with opened(shared_url) as engine:
        run = engine.handle(run_id)
        await until_status(run, RunStatus.DIVERGED)
        with pytest.raises(RunDiverged, match="missing required field `cents`"):
            await run.result(10)
    upcaster(Money)(in_cents)
    async with opened(shared_url) as engine:
        run = engine.handle(run_id)
        await run.signal(go, Money(1, "EUR"))
        assert await run.result(10) == 301


@pytest.mark.usefixtures("known")
async def test_an_upcaster_that_fails_parks_the_run_and_is_named(shared_url: str) -> None:
    run_id = await started_by_old_code(shared_url)
    new_code()

    @upcaster(Money)
    def mistaken(old: dict[str, Any]) -> dict[str, Any]:
        return {"cents": old["pounds"]}

    async with opened(shared_url) as engine:
        run = engine.handle(run_id)
        await until_status(run, RunStatus.DIVERGED)
        with pytest.raises(
            RunDiverged, match=r"mistaken.*of Money failed with KeyError\('pounds'\)"
        ):
            await run.result(10)


@pytest.mark.usefixtures("known")
async def test_an_upcaster_that_says_something_else_diverges(shared_url: str) -> None:
    """The step was scheduled with 1 and 2 euros. What new code passes must be that."""
    run_id = await started_by_old_code(shared_url)
    upcaster(Money)(in_cents)

    @task(name="upcasters.priced")
    async def priced(items: list[Money]) -> list[Money]:
        return items

    @workflow(name="upcasters.shop")
    async def shop(prices: dict[str, Money], given: list[Any]) -> None:
        await priced([Money(price.cents + 1, price.currency) for price in prices.values()])

    async with opened(shared_url) as engine:
        run = engine.handle(run_id)
        await until_status(run, RunStatus.DIVERGED)
        with pytest.raises(RunDiverged, match="journal: InvokeScheduled"):
            await run.result(10)
    assert shop.name == "upcasters.shop"
