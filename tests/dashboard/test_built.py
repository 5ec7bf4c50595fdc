import json
import re
from pathlib import Path

from perdure.dashboard.pages import built_files
from tests.dashboard.node import SOURCES, build_into
from tests.paths import ROOT

BUILT = ROOT / "src" / "perdure" / "dashboard" / "static"


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file()
    }


def test_built_files_match_their_sources(tmp_path: Path) -> None:
    build_into(tmp_path / "static")
    fresh, kept = contents(tmp_path / "static"), contents(BUILT)
    remedy = "run 'make dashboard' and commit src/perdure/dashboard/static"
    assert fresh.keys() == kept.keys(), remedy
    assert [name for name in fresh if fresh[name] != kept[name]] == [], remedy


def test_the_lock_file_names_no_registry() -> None:
    lock = json.loads((SOURCES / "package-lock.json").read_text())
    assert lock["packages"]
    assert all("resolved" not in package for package in lock["packages"].values())


def test_every_built_file_is_served() -> None:
    assert set(contents(BUILT)) == set(built_files())


def test_the_page_has_nothing_inline_and_nothing_from_elsewhere() -> None:
    page = (BUILT / "index.html").read_text()
    assert re.findall(r"<script(?![^>]*\ssrc=)", page) == []
    assert re.findall(r"\sstyle=|\son\w+=|<style", page) == []
    addresses = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert addresses
    assert all(address.startswith("./") for address in addresses)
