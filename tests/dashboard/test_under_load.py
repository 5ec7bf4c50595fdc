"""How fast the pages answer on large stores: measured in the browser, from an event to the frame that shows it."""

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from perdure import Engine
from tests.dashboard import shop_app
from tests.dashboard.conftest import OpenPage, Shop, serve, stop

pytestmark = pytest.mark.deep

RUNS = 100_000
STEPS = 20_000
LIMIT_MS = 200.0


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    folder = tmp_path_factory.mktemp("large")
    asyncio.run(fill(f"sqlite:///{folder}/shop.db", folder / "artifacts"))
    process, served = serve(folder)
    yield served
    stop(process)


async def fill(url: str, folder: Path) -> None:
    async with Engine(url, artifacts=str(folder)) as engine:
        large = await engine.start(shop_app.large(60_000), key="large")
        catalog = await engine.start(shop_app.catalog(STEPS), key="catalog")
        await large.result()
        await catalog.result()
        for first in range(0, RUNS, 2_000):
            await engine.start_many(shop_app.idle(first + each) for each in range(2_000))


def run_of(shop: Shop, key: str) -> str:
    run: str = shop.get(f"v1/runs?key_prefix={key}")["runs"][0]["run_id"]
    return run


OBSERVE = """() => {
  window.longest = 0;
  new PerformanceObserver(list => {
    for (const entry of list.getEntries()) window.longest = Math.max(window.longest, entry.duration);
  }).observe({type: 'event', durationThreshold: 16, buffered: false});
}"""
"""The time of an event: from the input to the next frame that is painted after its handlers."""


def longest(page: Page) -> float:
    page.evaluate(
        "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
    )
    measured: float = page.evaluate("() => window.longest")
    return measured


def scroll_time(page: Page, selector: str) -> float:
    """The longest time from a jump in a list to the frame with its rows."""
    measured: float = page.evaluate(
        """async selector => {
            const box = document.querySelector(selector);
            let longest = 0;
            for (let i = 1; i <= 20; i++) {
                const from = performance.now();
                box.scrollTop = (box.scrollHeight - box.clientHeight) * (i % 2 ? i / 20 : 1 - i / 20);
                await new Promise(done => requestAnimationFrame(() => setTimeout(done)));
                longest = Math.max(longest, performance.now() - from);
            }
            return longest;
        }""",
        selector,
    )
    return measured


def report(record: Any, what: str, value: float) -> None:
    record("explored", f"{what}: {value:.0f} ms")
    assert value < LIMIT_MS, what


def test_a_list_of_100_000_runs_answers_within_200_ms(
    shop: Shop, open_page: OpenPage, record_property: Any
) -> None:
    page = open_page("#/runs")
    rows = page.get_by_label("Runs", exact=True).get_by_role("listitem")
    expect(rows.first).to_be_visible()
    page.evaluate(OBSERVE)
    for _ in range(15):
        page.keyboard.press("j")
        page.keyboard.press("x")
    report(record_property, "keys in a list of 100,000 runs", longest(page))
    for _ in range(40):  # ever more pages are loaded at the end of the list
        page.evaluate(
            "() => { const box = document.querySelector('.list .box'); box.scrollTop = box.scrollHeight; }"
        )
        page.evaluate(
            "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )
    report(record_property, "scrolling in it", scroll_time(page, ".list .box"))
    assert rows.count() < 100


def test_a_run_of_20_000_steps_answers_within_200_ms(
    shop: Shop, open_page: OpenPage, record_property: Any
) -> None:
    run = run_of(shop, "catalog")
    page = open_page(f"#/runs/{run}")
    expect(page.locator(".steps .bar")).to_contain_text("20,000 steps")
    page.evaluate(OBSERVE)
    page.locator(".item .name").nth(3).click()
    expect(page.get_by_role("complementary", name="Step root.3")).to_contain_text("idempotency key")
    report(record_property, "opening a step of 20,000", longest(page))
    report(record_property, "scrolling in its steps", scroll_time(page, ".list .box"))
    page.get_by_role("tab", name="Timeline").click()
    expect(page.locator(".many", has_text="20,000")).to_be_visible()
    report(record_property, "its timeline", longest(page))
    page.get_by_role("tab", name="Books").click()
    expect(page.locator(".entry.on")).to_be_visible()
    page.evaluate("() => { window.longest = 0; }")
    page.locator(".rows .box").focus()
    for _ in range(15):
        page.keyboard.press("ArrowUp")
    report(record_property, "walking through its journal", longest(page))
    report(record_property, "scrolling in its ledger", scroll_time(page, ".ledger .box"))


def test_a_payload_of_5_megabytes_is_loaded_on_demand(
    shop: Shop, open_page: OpenPage, record_property: Any
) -> None:
    run = run_of(shop, "large")
    page = open_page(f"#/runs/{run}?step=root.0")
    panel = page.get_by_role("complementary", name="Step root.0")
    page.evaluate(OBSERVE)
    panel.get_by_role("button", name="Load 5").click()
    expect(panel.get_by_text("59,900 more")).to_be_visible()
    page.evaluate("() => { window.longest = 0; }")
    panel.get_by_text("59,900 more").click()
    expect(panel.get_by_text("59,700 more")).to_be_visible()
    report(record_property, "opening 200 more rows of a payload of 5 MB", longest(page))


def test_a_run_continues_after_its_worker_was_killed(tmp_path: Path, open_page: OpenPage) -> None:
    first, served = serve(tmp_path, "--executes")
    run = served.start("steady", turns=40)
    watcher, watching = serve(tmp_path, url=served.url)
    second: subprocess.Popen[str] | None = None
    try:
        page = open_page(f"#/runs/{run}", address=watching.address)
        expect(page.locator(".steps .bar")).to_contain_text("done")
        first.kill()
        second, _ = serve(tmp_path, "--executes", url=served.url)
        expect(page.locator("header .state.big")).to_have_text("completed", timeout=120_000)
        expect(page.locator(".steps .bar")).to_contain_text("40 steps")
        assert watching.findings() == []
        page.close()
    finally:
        for process in (first, watcher, second):
            if process is not None:
                stop(process)
