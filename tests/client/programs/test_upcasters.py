"""Runs started by older code that resume on newer code with other data shapes."""

from contextlib import suppress
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
    monkeypatch.setattr("perdure.authoring.values.upcaster._known", {})


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize("settings", [None, Settings(warm_memory=0, stepwise=True)])
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
        assert await run.result(60) == 750


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
        assert await run.result(60) == 300


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
        assert await engine.handle(run_id).result(60) == 400
    assert shop.name == "upcasters.shop"


@pytest.mark.usefixtures("known")
async def test_without_an_upcaster_the_run_is_parked_until_there_is_one(shared_url: str) -> None:
    run_id = await started_by_old_code(shared_url)
    _, go = new_code()
    async with opened(shared_url) as engine:
        run = engine.handle(run_id)
        await until_status(run, RunStatus.DIVERGED)
        with pytest.raises(RunDiverged, match="missing required field `cents`"):
            await run.result(60)
    upcaster(Money)(in_cents)
    async with opened(shared_url) as engine:
        run = engine.handle(run_id)
        await run.signal(go, Money(1, "EUR"))
        assert await run.result(60) == 301


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
            await run.result(60)


@pytest.mark.usefixtures("known")
async def test_call_with_another_value_after_upcasting_diverges(shared_url: str) -> None:
    """The step was scheduled with 1 and 2 euros. New code must pass the same values."""
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
            await run.result(60)
    assert shop.name == "upcasters.shop"


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize("error", [KeyError("pounds"), SystemExit(3)])
async def test_an_upcaster_that_fails_on_a_steps_argument_is_named(
    shared_url: str, error: BaseException
) -> None:
    """The workflow's own arguments are new, so only the comparison of its step calls the upcaster."""
    old_money = make_dataclass("OldMoney", [("euros", int)])
    go = Signal("upcasters.go", int)

    @task(name="upcasters.kept")
    async def kept(money: old_money) -> None:  # type: ignore[valid-type]
        assert money

    @workflow(name="upcasters.keeping")
    async def keeping(euros: int) -> int:
        await kept(old_money(euros))
        return await go.receive()

    async with Engine(shared_url) as engine:
        run = await engine.start(keeping(1))
        await until_status(run, RunStatus.BLOCKED)

    @task(name="upcasters.kept")
    async def kept_in_cents(money: Money) -> None:
        assert money.cents

    @workflow(name="upcasters.keeping")
    async def keeping_cents(euros: int) -> int:
        with suppress(Exception):
            await kept_in_cents(Money(euros * 100, "EUR"))
        return await go.receive()

    @upcaster(Money)
    def mistaken(old: dict[str, Any]) -> dict[str, Any]:
        raise error

    async with opened(shared_url) as engine:
        again = engine.handle(run.run_id)
        with pytest.raises(RunDiverged) as parked:
            await again.result(60)
        assert f"of Money failed with {error!r}" in str(parked.value)
        assert "mistaken" in str(parked.value)
        assert "mistaken" in str(await engine.preflight(["upcasters.keeping"]))
    assert keeping_cents.name == keeping.name


@pytest.mark.usefixtures("known")
async def test_a_field_with_a_default_that_was_added_needs_a_when(shared_url: str) -> None:
    before = make_dataclass("Gift", [("cents", int)])
    after = make_dataclass("Gift", [("cents", int), ("is_wrapped", bool, False)])
    go = Signal("upcasters.go", int)

    def code(kind: Any) -> Any:
        @task(name="upcasters.given")
        async def given(gift: kind) -> None:
            assert gift

        @workflow(name="upcasters.giving")
        async def giving(cents: int) -> int:
            await given(kind(cents))
            return await go.receive()

        return giving

    async with Engine(shared_url) as engine:
        run = await engine.start(code(before)(1))
        await until_status(run, RunStatus.BLOCKED)
    code(after)
    assert not (await Engine(shared_url).preflight(["upcasters.giving"])).is_clean
    upcaster(after, when=lambda old: "is_wrapped" not in old)(
        lambda old: {**old, "is_wrapped": False}
    )
    async with opened(shared_url) as engine:
        await engine.handle(run.run_id).signal(go, 7)
        assert await engine.handle(run.run_id).result(60) == 7
