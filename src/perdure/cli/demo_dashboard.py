"""`perdure demo --dashboard`: a shop in which runs start all the time, and the dashboard that shows them."""

import asyncio
import importlib.util
import logging
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from rich.console import Console

from perdure import Cron, Engine, Every, Handle
from perdure.core.errors import PerdureError

PROGRAMS: Final = Path(__file__).with_name("demo_programs.py")

CUSTOMERS: Final = ("Ada", "Bela", "Chidi", "Dolores", "Emre", "Farah", "Gus")
CITIES: Final = ("Lisbon", "Quito", "Oslo", "Porto")
QUESTIONS: Final = ("umbrellas", "delivery on Sundays", "gift wrapping")
PAUSE_S: Final = 2.0
"""Between two starts."""

FIRST: Final = 14
"""Runs that are started at once, so that there is something to see."""


def load_shop(folder: Path) -> ModuleType:
    """The programs as a module of a user: the code of runs is shown for files outside of Perdure alone."""
    copied = folder / "shop.py"
    copied.write_text(PROGRAMS.read_text(encoding="utf-8"), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("shop", copied)
    assert spec is not None  # noqa: S101 - for the type checker
    assert spec.loader is not None  # noqa: S101
    sys.modules["shop"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def dashboard_demo(folder: Path, port: int, console: Console) -> None:
    """Start runs and serve the dashboard until the process is stopped."""
    from perdure.api.serving import listening_port, server_of  # noqa: PLC0415 - an extra
    from perdure.dashboard.pages import Pages  # noqa: PLC0415

    logging.getLogger("perdure").setLevel(logging.ERROR)  # the dashboard shows what fails
    shop = load_shop(folder)
    async with shop.shop(f"sqlite:///{folder / 'shop.db'}") as engine:
        server = await server_of(engine, "127.0.0.1", port, Pages())
        serving = asyncio.create_task(server.serve())
        try:
            address = f"http://127.0.0.1:{await listening_port(server)}/"
            console.print(
                f"A shop is open at [bold]{address}[/bold]  (Ctrl-C closes it)", soft_wrap=True
            )
            await _make_schedules(engine, shop)
            starting = asyncio.create_task(start_runs(engine, shop))
            await serving
            starting.cancel()
            with suppress(asyncio.CancelledError):
                await starting
        finally:
            server.should_exit = True
            with suppress(asyncio.CancelledError):
                await serving


async def _make_schedules(engine: Engine, shop: ModuleType) -> None:
    await engine.schedule("stocktaking", shop.stocktaking("Lisbon"), Every(45))
    nightly = await engine.schedule("nightly", shop.stocktaking("Oslo"), Cron("30 2 * * *"))
    await nightly.pause("the manager is on holiday")


async def start_runs(engine: Engine, shop: ModuleType, most: int | None = None) -> None:
    """Start runs of all programs in turn, the first ones at once; without `most` for ever."""
    claim, number = shop.claim_program(), 0
    while most is None or number < most:
        number += 1
        with suppress(PerdureError):  # the next start may succeed
            run = await _start(engine, number, shop, claim)
            await _operate(number, run)
        if number > FIRST and (most is None or number < most):
            await asyncio.sleep(PAUSE_S)


async def _start(engine: Engine, number: int, shop: Any, claim: Any) -> Handle[Any]:
    customer = CUSTOMERS[number % len(CUSTOMERS)]
    order = shop.Order(
        1000 + number, customer, 2_900 + number * 7_919 % 120_000, CITIES[number % 4]
    )
    tags: Mapping[str, str] = {"customer": customer}
    match number % 10:
        case 1:
            return await engine.start(shop.refund(order), key=f"refund-{number}", tags=tags)
        case 2:
            call = claim(number=number, customer=customer)
            return await engine.start(call, key=f"claim-{number}")
        case 4:
            return await engine.start(shop.import_catalog(3), key=f"catalog-{number}")
        case 6:
            question = QUESTIONS[number % len(QUESTIONS)]
            return await engine.start(shop.assistant(question), tags=tags)
        case 8:
            return await engine.start(shop.album(number), key=f"album-{number}", tags=tags)
        case _:
            return await engine.start(
                shop.place_order(order), key=f"order-{order.number}", tags=tags
            )


async def _operate(number: int, run: Handle[Any]) -> None:
    """Pause or cancel a run, now and then."""
    if number % 23 == 5:
        await run.pause("the customer called")
    elif number % 17 == 7:
        await run.cancel("ordered twice")
