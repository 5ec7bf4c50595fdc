from pathlib import Path

import pytest

from tests.docs.markdown import ROOT, anchors, documents, links, name_of


@pytest.mark.parametrize("document", documents(), ids=name_of)
def test_every_link_and_anchor_leads_somewhere(document: Path) -> None:
    broken = [link for link in links(document.read_text()) if not _leads(document, link)]
    assert not broken


def _leads(document: Path, link: str) -> bool:
    if link.startswith(("http://", "https://", "mailto:")):
        return True
    path, _, anchor = link.partition("#")
    target = document if not path else (document.parent / path).resolve()
    if not target.exists() or not target.is_relative_to(ROOT):
        return False
    return not anchor or (target.suffix == ".md" and anchor in anchors(target.read_text()))


def test_every_page_of_the_docs_is_reached_from_the_index() -> None:
    index = ROOT / "docs" / "index.md"
    reached: set[Path] = set()
    waiting = [index]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        paths = (link.partition("#")[0] for link in links(page.read_text()) if "://" not in link)
        waiting += [(page.parent / path).resolve() for path in paths if path]
    assert {name_of(page) for page in documents() if "docs" in page.parts} <= {
        name_of(page) for page in reached
    }


def test_a_missing_page_and_a_missing_anchor_are_found(tmp_path: Path) -> None:
    page = ROOT / "docs" / "index.md"
    assert not _leads(page, "nowhere.md")
    assert not _leads(page, "glossary.md#nowhere")
    assert _leads(page, "glossary.md#glossary")
