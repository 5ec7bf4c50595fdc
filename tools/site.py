"""`python -m tools.site` puts the configuration and the pages of the site into build/site.

Pages link to files outside docs/: examples, the changelog. The site can only show what is below one folder, so such
files are copied there, programs as pages, and the links follow.
"""

import os
import re
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
CONFIGURATION = ROOT / "tools" / "zensical.toml"
STAGE = ROOT / "build" / "site"

LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")
LANGUAGES = {".py": "py", ".yaml": "yaml", ".toml": "toml"}


def stage(folder: Path) -> None:
    """Put every page into `folder`, and every file that a page links to."""
    pages = {path: folder / path.relative_to(ROOT) for path in sorted(DOCS.rglob("*.md"))}
    waiting = list(pages)
    while waiting:
        source = waiting.pop()
        for target in _outside(source, pages):
            pages[target] = folder / "docs" / _page_name(target.relative_to(ROOT))
            waiting.append(target)
    for source, page in pages.items():
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(_content(source, pages), encoding="utf-8")
    shutil.copy(CONFIGURATION, folder)


def _page_name(path: Path) -> Path:
    """Where a file outside docs/ becomes a page: `order.py` and `order.yaml` become two."""
    return path if path.suffix == ".md" else path.with_name(f"{path.name.replace('.', '-')}.md")


def _outside(source: Path, known: dict[Path, Path]) -> list[Path]:
    """The files that a page links to and the site does not have yet."""
    if source.suffix != ".md":
        return []
    targets = (_target(source, match[1]) for match in LINK.finditer(source.read_text("utf-8")))
    return [each for each in targets if each.is_file() and each not in known]


def _target(source: Path, link: str) -> Path:
    return (source.parent / link).resolve()


def _content(source: Path, pages: dict[Path, Path]) -> str:
    text = source.read_text(encoding="utf-8")
    if source.suffix != ".md":
        return f"# {source.name}\n\n```{LANGUAGES.get(source.suffix, 'text')}\n{text}```\n"

    def followed(match: re.Match[str]) -> str:
        page = pages.get(_target(source, match[1]))
        if page is None:
            return match[0]
        return f"]({os.path.relpath(page, pages[source].parent)}{match[2] or ''})"

    return LINK.sub(followed, text)


if __name__ == "__main__":
    shutil.rmtree(STAGE, ignore_errors=True)
    stage(STAGE)
