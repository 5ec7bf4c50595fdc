from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.dashboard.conftest import OpenPage, Shop
from tests.dashboard.node import installed_tools

SETTLES = 25
"""How often a page with problems is looked at again."""


def serious_problems(page: Page) -> list[tuple[str, str, str]]:
    """The serious problems that axe finds on the page: rule, first element, and why."""
    result = page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
    return [
        (
            each["id"],
            each["nodes"][0]["html"][:200],
            each["nodes"][0].get("failureSummary", "")[:300],
        )
        for each in result["violations"]
        if each["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_problem_on_any_page(
    shop: Shop, open_page: OpenPage, scheme: str
) -> None:
    checker = (installed_tools() / "axe-core" / "axe.min.js").read_text()
    shop.paper.unlink(missing_ok=True)
    waiting, parked = shop.start("parcel", key="axe", order="p"), shop.start("labelled", order="p")
    page = open_page(scheme=scheme)
    places = [
        "runs",
        "inbox",
        "errors",
        "programs",
        "programs/letter",
        "queues",
        "hosts",
        "schedules",
        "bulk",
    ]
    places += [
        f"runs/{waiting}?tab={tab}"
        for tab in ("steps", "timeline", "books", "code", "decisions", "streams")
    ]
    places += [f"runs/{parked}?step=root.0"]
    found: list[Any] = []
    for place in places:
        page.goto(f"{shop.address}#/{place}")
        expect(page.locator("main h1")).to_be_visible()
        expect(page.get_by_text("Loading…")).to_have_count(0)
        page.evaluate(checker)
        problems = serious_problems(page)
        for _ in range(SETTLES):
            if not problems:
                break
            page.wait_for_timeout(
                200
            )  # styles of a page that was just loaded may not be applied yet
            problems = serious_problems(page)
        found += [(place, *each) for each in problems]
    assert found == []
