"""The project's Markdown files, and what the tests need of them: headings, links, code."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]

FENCE = re.compile(r"^( *)(```+|~~~+)(\w*)[^\n]*\n(.*?)^\1\2 *$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(<?([^)\s>]+)>?(?: \"[^\"]*\")?\)")
SPAN = re.compile(r"`([^`\n]+)`")


def documents() -> list[Path]:
    """Every page for people: those of the root, and all below docs/."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def name_of(document: Path) -> str:
    return document.relative_to(ROOT).as_posix()


def prose(text: str) -> str:
    """A page without its blocks of code."""
    return FENCE.sub("", text)


def blocks(text: str, language: str) -> Iterator[str]:
    yield from (match[4] for match in FENCE.finditer(text) if match[3] == language)


def links(text: str) -> list[str]:
    return LINK.findall(SPAN.sub("`code`", prose(text)))


def anchors(text: str) -> set[str]:
    """The anchors of a page on which code hosts and the site agree."""
    plain = [_plain(match[1]) for match in HEADING.finditer(prose(text))]
    return {_hosted_slug(heading) for heading in plain} & {_site_slug(heading) for heading in plain}


def _plain(heading: str) -> str:
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("\\", "")


def _hosted_slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _site_slug(heading: str) -> str:
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())
