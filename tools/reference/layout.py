"""The Markdown that the pages are made of."""

import re
from collections.abc import Iterable, Sequence

NOTE = "<!-- Generated from the code by `make docs`. Change the code, not this page. -->"


def page(title: str, lead: str, parts: Iterable[str]) -> str:
    return "\n\n".join([NOTE, f"# {title}", lead, *parts]) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(_cell(each) for each in line)} |" for line in lines)


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip().replace("|", "\\|")


def code(text: str, language: str = "py") -> str:
    """A block of code. Its language is `py` and not `python`, which the tests would execute."""
    return f"```{language}\n{text}\n```"


def quoted(text: str) -> str:
    """A value as code, or nothing."""
    return f"`{text}`" if text else ""
