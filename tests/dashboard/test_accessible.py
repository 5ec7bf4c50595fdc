from typing import Any

import pytest
from playwright.sync_api import expect

from tests.dashboard.conftest import OpenPage, Shop
from tests.dashboard.node import installed_tools


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
        result = page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
        found += [
            (
                place,
                each["id"],
                each["nodes"][0]["html"][:200],
                each["nodes"][0].get("failureSummary", "")[:300],
            )
            for each in result["violations"]
            if each["impact"] in ("serious", "critical")
        ]
    assert found == []
