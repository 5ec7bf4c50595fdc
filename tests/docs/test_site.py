"""The site has every page, without the tool that builds it."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.docs.markdown import ROOT, documents, links
from tools import site


def _pages(nav: list[dict[str, Any]]) -> Iterator[str]:
    for item in nav:
        for target in item.values():
            if isinstance(target, str):
                yield target
            else:
                yield from _pages(target)


def test_the_navigation_lists_every_page_once() -> None:
    with site.CONFIGURATION.open("rb") as file:
        listed = list(_pages(tomllib.load(file)["project"]["nav"]))
    docs = ROOT / "docs"
    below = [page for page in documents() if page.is_relative_to(docs)]
    assert sorted(listed) == sorted(page.relative_to(docs).as_posix() for page in below)


def test_every_link_of_a_staged_page_stays_inside_the_site(tmp_path: Path) -> None:
    site.stage(tmp_path)
    broken = [
        f"{page.name}: {link}"
        for page in tmp_path.rglob("*.md")
        for link in links(page.read_text())
        if "://" not in link and not link.startswith("#")
        if not (page.parent / link.partition("#")[0]).resolve().is_relative_to(tmp_path / "docs")
    ]
    assert not broken
