"""A shop that is served to a real browser. Without Chromium these tests are skipped, and say so."""

import json
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.paths import ROOT

CHROMIUM = next(
    (
        found
        for name in ("chromium", "chromium-browser", "google-chrome")
        if (found := shutil.which(name))
    ),
    None,
)
NO_CHROMIUM = (
    "there is no Chromium: install Debian's package chromium to run the tests of the dashboard"
)
FLAGS = (
    "--no-sandbox",  # root has none
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
SCREENS = ROOT / "build" / "dashboard"
"""Where screenshots are kept."""

PATIENCE_MS = 30_000
"""The machine may be busy."""

expect.set_options(timeout=PATIENCE_MS)


@dataclass(frozen=True)
class Shop:
    """The server of a shop. `paper` is the file without which labels can't be printed."""

    address: str
    url: str
    paper: Path

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.address}{path}", timeout=60) as answer:
            return json.load(answer)

    def post(self, path: str, body: object, **headers: str) -> Any:
        request = urllib.request.Request(
            f"{self.address}{path}",
            json.dumps(body).encode(),
            {"Content-Type": "application/json", **headers},
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from None

    def start(
        self,
        program: str,
        *,
        key: str | None = None,
        tags: dict[str, str] | None = None,
        **given: object,
    ) -> str:
        headers = {} if key is None else {"Idempotency-Key": key}
        body = {"input": given, "tags": tags or {}}
        run: str = self.post(f"v1/programs/{program}/runs", body, **headers)["run_id"]
        return run

    def status(self, run: str) -> str:
        found: str = self.get(f"v1/runs/{run}")["status"]
        return found

    def findings(self) -> list[object]:
        """What the books of all runs have against them."""
        found: list[object] = []
        after = ""
        while True:
            page = self.get(f"v1/runs?limit=200{after}")
            for run in page["runs"]:
                found.extend(self.get(f"v1/runs/{run['run_id']}/audit")["findings"])
            if page.get("cursor") is None:
                return found
            after = f"&after={page['cursor']}"


def serve(
    folder: Path, *options: str, url: str | None = None
) -> tuple["subprocess.Popen[str]", Shop]:
    """Start a server of the shop on a free port."""
    url = url or f"sqlite:///{folder}/shop.db"
    paper = folder / "paper"
    process = subprocess.Popen(
        [
            Path(sys.executable).with_name("perdure"),
            "serve",
            "shop_app:engine",
            "--port",
            "0",
            *options,
        ],
        cwd=Path(__file__).parent,
        env={
            **os.environ,
            "SHOP_URL": url,
            "SHOP_PAPER": str(paper),
            "SHOP_ARTIFACTS": str(folder / "artifacts"),
            "COLUMNS": "200",
        },
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    if "http://" not in line:
        stop(process)
        raise AssertionError(f"the server did not start: {line!r}")
    return process, Shop(line.rpartition(" ")[2].strip().rstrip("/") + "/", url, paper)


def stop(process: "subprocess.Popen[str]") -> None:
    process.terminate()
    process.wait(30)
    assert process.stdout is not None
    process.stdout.close()


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    process, served = serve(tmp_path_factory.mktemp("shop"), "--executes")
    try:
        yield served
        assert served.findings() == []
    finally:
        stop(process)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip(NO_CHROMIUM)
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield launched
        launched.close()


OpenPage = Callable[..., Page]


@pytest.fixture
def open_page(shop: Shop, browser: Browser) -> Iterator[OpenPage]:
    """Opens a page of the dashboard. Errors in its console fail the test, and so does what its policy blocks."""
    contexts: list[BrowserContext] = []
    problems: list[str] = []

    def open_at(
        place: str = "#/runs",
        width: int = 1440,
        height: int = 900,
        scheme: Any = "light",
        address: str = "",
    ) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme=scheme,
            reduced_motion="reduce",
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on(
            "console", lambda said: problems.append(said.text) if said.type == "error" else None
        )
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(f"{address or shop.address}{place}")
        return page

    yield open_at
    for context in contexts:
        context.close()
    assert problems == []
