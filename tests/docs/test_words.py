"""A sentence names its actor: words that hide it are banned from the pages that people write."""

import re
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT, documents, name_of, prose
from tools.reference.pages import PAGES

# Each with what to write instead.
BANNED = {
    "whoever": "name the actor: host, run, task, client, caller",
    "nobody": "name the actor, and negate the verb",
    "somebody": "name the actor: another host, a client, an operator",
    "anybody": "name the actor",
    "everybody": "all participants, all hosts",
    "told": "reported, returned, notified",
    "goes on": "continues, resumes",
    "go on": "continue, resume",
    "went on": "continued, resumed",
    "taken for dead": "considered dead",
    "astray": "invalid",
    "mended": "fixed",
}


def written_pages() -> list[Path]:
    generated = {f"docs/reference/{name}" for name in PAGES}
    return [page for page in documents() if name_of(page) not in generated]


@pytest.mark.parametrize("page", written_pages(), ids=name_of)
def test_a_page_names_its_actors(page: Path) -> None:
    text = prose(page.read_text()).lower()
    found = [word for word in BANNED if re.search(rf"\b{word}\b", text)]
    assert not found, [f"{word}: write {BANNED[word]}" for word in found]


def test_a_page_that_hides_its_actor_is_found() -> None:
    assert any(re.search(rf"\b{word}\b", "runs that nobody advances") for word in BANNED)
    assert ROOT / "README.md" in written_pages()
