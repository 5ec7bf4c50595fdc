"""A sentence names its actor: words that hide it are banned from pages, and from what sources say to their readers."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT, SPAN, documents, name_of, prose
from tools.reference.pages import PAGES

# Each with what to write instead.
BANNED = {
    "whoever": "name the actor: host, run, task, client, caller",
    "nobody": "name the actor, and negate the verb",
    "somebody": "name the actor: another host, a client, an operator",
    "anybody": "name the actor",
    "everybody": "all participants, all hosts",
    "told": "reported, returned, notified",
    "whose turn": "name the actor that runs now",
    "who comes second": "name the actor that waits",
    "in vain": "say what fails",
    "at hand": "prefetched, in memory",
    "goes on": "continues, resumes",
    "go on": "continue, resume",
    "went on": "continued, resumed",
    "taken for dead": "considered dead",
    "astray": "invalid",
    "mended": "fixed",
}
HIDING = re.compile(rf"\b(?:{'|'.join(BANNED)})\b", re.IGNORECASE)

COMMENTS = {
    ".sql": re.compile(r"^ *--.*$", re.MULTILINE),
    ".c": re.compile(r"/\*.*?\*/", re.DOTALL),
    ".h": re.compile(r"/\*.*?\*/", re.DOTALL),
    ".toml": re.compile(r"#.*$", re.MULTILINE),
    "": re.compile(r"#.*$", re.MULTILINE),  # Makefile
}


def written_pages() -> list[Path]:
    generated = {f"docs/reference/{name}" for name in PAGES}
    return [page for page in documents() if name_of(page) not in generated]


def sources() -> Iterator[Path]:
    """The sources of which people read the comments; without this module, which names the banned words."""
    for suffix in (".py", ".sql", ".c", ".h"):
        for folder in ("src", "tests", "bench", "tools", "examples"):
            yield from (ROOT / folder).rglob(f"*{suffix}")
    yield from (ROOT / "pyproject.toml", ROOT / "Makefile", ROOT / "setup.py")


def remarks(suffix: str, text: str) -> Iterator[str]:
    """What a source says to its readers: comments, docstrings, names of tests."""
    if suffix != ".py":
        yield from COMMENTS[suffix].findall(text)
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.string
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield str(node.value.value)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name.replace("_", " ")


def hidden_actors(suffix: str, text: str) -> list[str]:
    # Most sources have none of the words anywhere, so few are parsed.
    if HIDING.search(text.replace("_", " ")) is None:
        return []
    return [
        word.lower()
        for remark in remarks(suffix, text)
        for word in HIDING.findall(SPAN.sub("", remark))
    ]


def advice(words: list[str]) -> list[str]:
    return [f"{word}: write {BANNED[word]}" for word in words]


@pytest.mark.parametrize("page", written_pages(), ids=name_of)
def test_a_page_names_its_actors(page: Path) -> None:
    found = [word.lower() for word in HIDING.findall(prose(page.read_text()))]
    assert not found, advice(found)


def test_comments_docstrings_and_test_names_name_their_actors() -> None:
    found = {
        name_of(source): advice(words)
        for source in sources()
        if source != Path(__file__)
        and (words := hidden_actors(source.suffix, source.read_text(encoding="utf-8")))
    }
    assert not found


@pytest.mark.parametrize(
    ("suffix", "text"),
    [
        (".py", "def f():\n    '''Runs that nobody advances.'''\n"),
        (".py", "x = 1  # Runs that nobody advances.\n"),
        (".py", "async def test_nobody_advances(): ...\n"),
        (".sql", "-- Runs that nobody advances.\nSELECT 1\n"),
        (".c", "/* Runs that\n   nobody advances. */\n"),
        (".toml", "# Runs that nobody advances.\n"),
    ],
)
def test_a_source_that_hides_its_actor_is_found(suffix: str, text: str) -> None:
    assert hidden_actors(suffix, text) == ["nobody"]


def test_a_page_that_hides_its_actor_is_found() -> None:
    assert HIDING.search("Runs that nobody advances")
    assert ROOT / "README.md" in written_pages()


def test_data_and_names_of_systems_are_no_remarks() -> None:
    assert hidden_actors(".py", "user = 'nobody'  # Root's servers run as `nobody`.\n") == []
    assert hidden_actors(".sql", "SELECT 'nobody'\n") == []
