import ast
import re
from collections import defaultdict

import pytest

from tests.docs.markdown import ROOT

GLOSSARY = (ROOT / "docs" / "glossary.md").read_text()
ENTRIES = dict(re.findall(r"^### (.+)\n\n((?:(?!#).*\n?)+)", GLOSSARY, re.MULTILINE))

WORDS = [
    *("program", "run", "step", "journal", "entry", "account", "ledger", "posting", "semaphore"),
    *("closed bit", "message", "work", "bundle", "group", "host", "owner", "epoch", "attempt"),
    *(
        "artifact",
        "view",
        "operation",
        "participant",
        "call",
        "frame",
        "books",
        "fence",
        "committer",
    ),
    *("parked", "warm", "doubt", "hint", "fiber", "preflight", "seeded bugs"),
]


def class_names() -> dict[str, set[str]]:
    """The classes of the source, by the word that each is, in lower case.

    Those of the command line are left out: they describe a screen, not the engine.
    """
    found = defaultdict(set)
    source = ROOT / "src" / "perdure"
    for path in source.rglob("*.py"):
        if path.is_relative_to(source / "cli"):
            continue
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                found[node.name.lower()].add(node.name)
    return found


CLASSES = class_names()


@pytest.mark.parametrize("word", WORDS)
def test_the_glossary_explains(word: str) -> None:
    assert word in ENTRIES


@pytest.mark.parametrize("word", ENTRIES)
def test_an_entry_has_three_lines_at_most(word: str) -> None:
    assert len(ENTRIES[word].strip().splitlines()) <= 3


@pytest.mark.parametrize("word", ENTRIES)
def test_a_class_that_an_entry_names_exists(word: str) -> None:
    named = set(re.findall(r"`([A-Z]\w+)`", ENTRIES[word]))
    assert not {name for name in named if name.lower() not in CLASSES}


@pytest.mark.parametrize("word", ENTRIES)
def test_an_entry_names_the_class_of_its_word(word: str) -> None:
    classes = CLASSES.get(word.replace(" ", ""), set())
    assert all(f"`{name}`" in ENTRIES[word] for name in classes)
