import re
from contextlib import suppress

import pytest
from playwright.sync_api import Page, expect

from tests.dashboard.conftest import SCREENS, OpenPage, Shop


def wait_for_state(page: Page, word: str) -> None:
    expect(page.locator("header .state.big")).to_have_text(word)


def test_a_run_is_started_and_seen_to_move_to_its_end(shop: Shop, open_page: OpenPage) -> None:
    page = open_page()
    page.get_by_role("button", name="Start a run").click()
    page.get_by_label("Program").select_option("letter")
    page.get_by_label("grams").fill("70")
    page.get_by_role("button", name="Start", exact=True).click()
    wait_for_state(page, "completed")
    expect(page.get_by_role("listitem").filter(has_text="stick")).to_contain_text("done")
    expect(page.locator(".result summary")).to_contain_text("4 stamps")


def test_a_running_run_is_seen_to_continue_without_a_reload(
    shop: Shop, open_page: OpenPage
) -> None:
    run = shop.start("parcel", order="p2")
    page = open_page(f"#/runs/{run}")
    wait_for_state(page, "waiting")
    expect(page.locator(".steps .bar")).to_contain_text("2 steps")
    page.evaluate("() => { window.isTheSamePage = true; }")
    answer = {"accepted": False, "discount": 1, "reason": "none"}
    shop.post(f"v1/runs/{run}/signals", {"name": "verdict", "value": answer})
    wait_for_state(page, "completed")
    expect(page.locator(".steps .bar")).to_contain_text("3 steps")
    assert page.evaluate("() => window.isTheSamePage")


def test_the_inbox_answers_a_typed_signal_with_a_form(shop: Shop, open_page: OpenPage) -> None:
    run = shop.start("parcel", key="parcel-1", order="p1")
    page = open_page("#/inbox")
    card = page.get_by_role("article").filter(has_text="parcel-1")
    card.get_by_role("button", name="Answer…").click()
    card.get_by_label("Yes").check()
    card.get_by_label("discount").fill("many")
    expect(card.get_by_text("a whole number").first).to_be_visible()
    expect(card.get_by_role("button", name="Send the answer")).to_be_disabled()
    card.get_by_label("discount").fill("15")
    card.get_by_label("reason").select_option("late")
    card.get_by_role("button", name="Send the answer").click()
    expect(card).to_have_count(0)
    page.goto(f"{shop.address}#/runs/{run}")
    wait_for_state(page, "completed")
    expect(page.locator(".result summary")).to_contain_text("p1: True, 15 off, late")


def test_a_run_is_paused_and_resumed_with_a_reason_that_its_acts_show(
    shop: Shop, open_page: OpenPage
) -> None:
    run = shop.start("idle", number=1)
    page = open_page(f"#/runs/{run}")
    wait_for_state(page, "waiting")
    page.get_by_role("button", name="Pause", exact=True).click()
    page.get_by_label("Reason").fill("over lunch")
    page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    wait_for_state(page, "paused")
    page.get_by_role("button", name="Resume", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Resume").click()
    wait_for_state(page, "waiting")
    page.get_by_role("tab", name="Acts").click()
    row = page.get_by_role("row").filter(has_text="over lunch")
    expect(row).to_contain_text("pause")
    expect(row).to_contain_text("accepted")


def test_the_explanation_has_a_button_that_is_its_command(shop: Shop, open_page: OpenPage) -> None:
    run = shop.start("idle", number=2)
    page = open_page(f"#/runs/{run}")
    expect(page.locator(".explain")).to_contain_text("waits for signal 'go'")
    expect(page.locator(".explain code")).to_contain_text(f"perdure runs signal {run} go")
    page.get_by_role("button", name="Answer go…").click()
    page.get_by_label("Value of go").fill("home")
    page.get_by_role("dialog").get_by_role("button", name="Send").click()
    wait_for_state(page, "completed")
    expect(page.locator(".result summary")).to_contain_text('"home"')


def test_a_parked_step_is_retried(shop: Shop, open_page: OpenPage) -> None:
    shop.paper.unlink(missing_ok=True)
    run = shop.start("labelled", order="one")
    page = open_page(f"#/runs/{run}?step=root.0")
    panel = page.get_by_role("complementary", name="Step root.0")
    expect(panel).to_contain_text("parked")
    expect(panel).to_contain_text("the printer has no paper")
    shop.paper.write_text("white")
    panel.get_by_role("button", name="Retry…").click()
    page.get_by_label("Reason").fill("new paper")
    page.get_by_role("dialog").get_by_role("button", name="Retry").click()
    wait_for_state(page, "completed")
    expect(panel).to_contain_text("Retry #1")
    expect(panel).to_contain_text("label of one")
    shop.paper.unlink()


def test_a_parked_step_is_skipped_with_a_value(shop: Shop, open_page: OpenPage) -> None:
    shop.paper.unlink(missing_ok=True)
    run = shop.start("labelled", order="two")
    page = open_page(f"#/runs/{run}?step=root.0")
    page.get_by_role("button", name="Skip…").click()
    page.get_by_label("Value in place of the result").fill("written by hand")
    page.get_by_label("Reason").fill("no printer")
    page.get_by_role("dialog").get_by_role("button", name="Skip").click()
    wait_for_state(page, "completed")
    expect(page.locator(".result summary")).to_contain_text("written by hand")


def test_a_fork_with_an_edited_output_is_previewed_and_its_difference_shown(
    shop: Shop, open_page: OpenPage
) -> None:
    run = shop.start("letter", grams=70)
    page = open_page(f"#/runs/{run}?step=root.0")
    wait_for_state(page, "completed")
    page.get_by_role("button", name="Fork from here…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("in the fork").fill('{"grams": 70, "stamps": 9}')
    dialog.get_by_role("button", name="Preview").click()
    expect(dialog.get_by_role("status")).to_contain_text("9")
    dialog.get_by_role("button", name="Fork", exact=True).click()
    expect(page.get_by_role("heading", name="Difference")).to_be_visible()
    section = page.locator("section").filter(has_text="root.1")
    expect(section.locator(".minus").filter(has_text="4 stamps")).to_be_visible()
    expect(section.locator(".plus").filter(has_text="9 stamps")).to_be_visible()
    assert shop.status(run) == "completed"


def test_filters_are_in_the_address_and_bulk_cancel_reaches_all_that_match(
    shop: Shop, open_page: OpenPage
) -> None:
    wanted = [shop.start("idle", tags={"batch": "b1"}, number=number) for number in range(5)]
    other = shop.start("idle", tags={"batch": "b2"}, number=9)
    page = open_page()
    page.get_by_role("button", name="Filter").click()
    page.get_by_role("textbox", name="tag").fill("batch=b1")
    page.get_by_role("textbox", name="tag").press("Enter")
    rows = page.get_by_label("Runs", exact=True).get_by_role("listitem")
    expect(rows).to_have_count(5)
    assert "tag=batch%3Db1" in page.url
    page.reload()
    expect(rows).to_have_count(5)
    page.get_by_label("Select the loaded runs").check()
    page.get_by_role("button", name="Cancel runs…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("5 runs")
    send = dialog.get_by_role("button", name="Cancel 5 runs")
    expect(send).to_be_disabled()  # without a reason
    dialog.get_by_label("Reason").fill("ordered twice")
    send.click()
    expect(dialog).to_contain_text("5 of 5")
    expect(dialog.locator("dl")).to_contain_text("accepted5")
    dialog.get_by_role("button", name="Close").last.click()
    expect(rows.filter(has_text="cancelled")).to_have_count(5)
    assert [shop.status(run) for run in wanted] == ["cancelled"] * 5
    assert shop.status(other) == "blocked"


def test_plain_text_finds_a_key_and_states_filter(shop: Shop, open_page: OpenPage) -> None:
    shop.start("idle", key="needle-17", number=17)
    page = open_page()
    page.keyboard.press("/")
    page.keyboard.type("needle-1")
    rows = page.get_by_label("Runs", exact=True).get_by_role("listitem")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("needle-17")
    page.get_by_role("group", name="States").get_by_role(
        "button", name=re.compile("waiting")
    ).click()
    expect(rows).to_have_count(1)
    assert "status=blocked" in page.url
    assert "text=needle-1" in page.url


def test_an_entry_of_the_journal_shows_what_its_account_held_and_holds(
    shop: Shop, open_page: OpenPage
) -> None:
    run = shop.start("letter", grams=10)
    page = open_page(f"#/runs/{run}")
    wait_for_state(page, "completed")
    page.get_by_role("tab", name="Books").click()
    expect(page.get_by_text(re.compile("verified to #"))).to_be_visible()
    history = shop.get(f"v1/runs/{run}/history")["events"]
    balances: dict[str, int] = {}
    for event in history:
        page.locator(".entry").nth(event["offset"]).click()
        expect(page.locator(".slip h2")).to_contain_text(f"#{event['offset']}")
        for at, posting in enumerate(event.get("postings", [])):
            before = balances.get(posting["account"], 0)
            balances[posting["account"]] = before + int(posting["value"])
            shown = page.locator(".posting").nth(at).locator(".digits")
            expect(shown.nth(0)).to_have_attribute("aria-label", f"{before:015d}")
            expect(shown.nth(2)).to_have_attribute(
                "aria-label", f"{balances[posting['account']]:015d}"
            )
    ledger = {
        each["account"]: int(each["balance"])
        for each in shop.get(f"v1/runs/{run}/ledger")["accounts"]
    }
    assert balances == ledger


def test_the_keyboard_alone_opens_a_run_answers_it_and_returns(
    shop: Shop, open_page: OpenPage
) -> None:
    run = shop.start("idle", key="keys-1", number=3)
    page = open_page("#/runs?text=keys-1")
    expect(page.get_by_label("Runs", exact=True).get_by_role("listitem")).to_have_count(1)
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    wait_for_state(page, "waiting")
    answer = page.get_by_role("button", name="Answer go…")
    expect(answer).to_be_visible()
    for _ in range(60):
        page.keyboard.press("Tab")
        if answer.evaluate("each => each === document.activeElement"):
            break
    page.keyboard.press("Enter")
    field = page.get_by_label("Value of go")
    expect(field).to_be_visible()
    for _ in range(10):
        if field.evaluate("each => each === document.activeElement"):
            break
        page.keyboard.press("Tab")
    page.keyboard.type("typed")
    page.keyboard.press("Enter")
    wait_for_state(page, "completed")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("g")
    page.keyboard.press("i")
    expect(page.get_by_role("heading", name="Inbox")).to_be_visible()
    assert shop.get(f"v1/runs/{run}/result")["result"] == "typed"


def test_the_first_page_is_under_150_kilobytes_and_loads_nothing_from_elsewhere(
    shop: Shop, open_page: OpenPage
) -> None:
    page = open_page("")
    expect(page.get_by_role("heading", name="Runs")).to_be_visible()
    page.reload()
    expect(page.get_by_label("Runs", exact=True)).to_be_visible()
    sizes: list[tuple[str, int]] = page.evaluate(
        """() => performance.getEntriesByType("resource").filter(each => !each.name.includes("/v1"))
            .map(each => [each.name, each.encodedBodySize])"""
    )
    assert all(name.startswith(shop.address) for name, _ in sizes)
    document = page.evaluate("() => performance.getEntriesByType('navigation')[0].encodedBodySize")
    total = document + sum(size for _, size in sizes)
    assert 50_000 < total < 150_000, sizes


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 1024, 390])
def test_no_page_overflows_and_each_is_kept_as_a_picture(
    shop: Shop, open_page: OpenPage, width: int, scheme: str
) -> None:
    shop.paper.unlink(missing_ok=True)
    waiting = shop.start("parcel", key="pictured", order="p")
    parked = shop.start("labelled", key="pictured-label", order="p")
    done = shop.start("letter", key="pictured-letter", grams=70)
    page = open_page(width=width, height=844 if width == 390 else 900, scheme=scheme)
    SCREENS.mkdir(parents=True, exist_ok=True)
    places = {
        "runs": "runs",
        "runs-failed": "runs?status=failed,blocked",
        "steps": f"runs/{waiting}",
        "step": f"runs/{parked}?step=root.0",
        "timeline": f"runs/{done}?tab=timeline",
        "books": f"runs/{done}?tab=books",
        "code": f"runs/{waiting}?tab=code",
        "acts": f"runs/{waiting}?tab=decisions",
        "output": f"runs/{waiting}?tab=streams",
        **{
            each: each
            for each in (
                "inbox",
                "errors",
                "programs",
                "schedules",
                "queues",
                "hosts",
                "operations",
                "bulk",
                "alerts",
            )
        },
        "program": "programs/letter",
    }
    for name, place in places.items():
        page.goto(f"{shop.address}#/{place}")
        expect(page.locator("main h1")).to_be_visible()
        with suppress(Exception):
            page.get_by_text("Loading…").first.wait_for(state="hidden")
        page.screenshot(path=SCREENS / f"{name}-{width}-{scheme}.png")
        overflow = page.evaluate(
            "() => document.querySelector('main').scrollWidth - document.querySelector('main').clientWidth"
        )
        assert overflow <= 0, f"{name} at {width} is {overflow} px too wide"
