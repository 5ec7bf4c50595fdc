"""Every file, folder and module that a page names exists."""

import re
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT, SPAN, documents, name_of, prose

FOLDERS = ("src", "tests", "docs", "examples", "bench", "tools", "requirements")

# Folders that a page may leave out: pages about the code write `core/limits.py`.
BASES = (ROOT, ROOT / "src" / "perdure", ROOT / "docs")

PATH = re.compile(r"^(?:[\w.-]+/)+[\w.*-]*$")


def paths(text: str) -> list[str]:
    """The spans of code that are paths of this project."""
    spans = (span.removesuffix("/") for span in SPAN.findall(prose(text)))
    return [span for span in spans if PATH.match(f"{span}/") and _is_ours(span)]


def _is_ours(span: str) -> bool:
    first, _, rest = span.partition("/")
    layers = {path.name for path in (ROOT / "src" / "perdure").iterdir() if path.is_dir()}
    return bool(rest) and (first in FOLDERS or first in layers)


def exists(path: str) -> bool:
    return any(any(base.glob(path)) for base in BASES)


@pytest.mark.parametrize(
    "document", [page for page in documents() if page.name != "CHANGELOG.md"], ids=name_of
)
def test_every_path_that_a_page_names_exists(document: Path) -> None:
    missing = [path for path in paths(document.read_text()) if not exists(path)]
    assert not missing


def test_a_path_that_does_not_exist_is_found() -> None:
    assert paths("see `core/nowhere.py` and `and/or`") == ["core/nowhere.py"]
    assert not exists("core/nowhere.py")
    assert exists("core/limits.py")
