"""The page of the SQL schema, from the annotated schema of Postgres."""

import re
from collections.abc import Iterator
from importlib.resources import files
from itertools import chain
from pathlib import Path

import perdure
from tools.reference.layout import page, quoted, table

TABLE = re.compile(r"((?:^--.*\n)+)CREATE TABLE perdure\.(\w+) \(\n((?:    .*\n)+)\)", re.MULTILINE)
COLUMN = re.compile(
    r"^    ([a-z_]+) +([a-z][\w ]*?)(?: COLLATE \"C\")?( NOT NULL)?(?= |,|$)", re.MULTILINE
)
KEY = re.compile(r"PRIMARY KEY \(([^)]+)\)|^    ([a-z_]+) .*PRIMARY KEY", re.MULTILINE)
VIEW = re.compile(
    r"((?:^--[^\n]*\n)+)CREATE VIEW perdure\.(\w+) AS\nSELECT (?:DISTINCT )?(.*?)\sFROM ",
    re.MULTILINE | re.DOTALL,
)
INDEX = re.compile(
    r"((?:^--.*\n)*)^CREATE (?:UNIQUE )?INDEX (\w+)\s+ON perdure\.(\w+) ([^;]+);", re.MULTILINE
)


def schema_page() -> str:
    text = _schema()
    lead = (
        "The tables of a store, as Postgres has them in the schema `perdure`. SQLite has the same"
        " tables, named `perdure_run` and so on, except for `outcome`. Read them as you like; only"
        " Perdure may write them. Times are milliseconds since 1970."
    )
    return page("SQL schema", lead, chain(_tables(text), _views(text)))


def _schema() -> str:
    folder = Path(str(files(perdure)))
    (found,) = folder.rglob("postgres_schema.sql")
    return found.read_text(encoding="utf-8")


def _tables(text: str) -> Iterator[str]:
    summaries = _summaries(text)
    indexes: dict[str, list[str]] = {}
    for match in INDEX.finditer(text):
        reason = " ".join(line.removeprefix("--").strip() for line in match[1].splitlines())
        shown = re.sub(r"\s+", " ", match[4]).strip()
        indexes.setdefault(match[3], []).append(
            f"- `{match[2]}` on `{shown}`: {reason}".rstrip(": ")
        )
    for match in TABLE.finditer(text):
        comment, name, body = match.groups()
        yield f"## {name}"
        key = KEY.search(body)
        columns = "" if key is None else f" Primary key: `{key[1] or key[2]}`."
        yield f"{summaries.get(name, '')}.{columns}".lstrip(".").strip()
        yield _columns(comment, body)
        if name in indexes:
            yield "Indexes:"
            yield "\n".join(indexes[name])


def _views(text: str) -> Iterator[str]:
    """The views for the user's SQL, with their columns."""
    yield "## Views"
    yield (
        "For your own SQL and BI tools, and for `Engine.sql`. A version keeps its columns: more may be"
        " added. SQLite has the same views."
    )
    rows = []
    for match in VIEW.finditer(text):
        said = " ".join(line.removeprefix("--").strip() for line in match[1].splitlines())
        rows.append((quoted(match[2]), said, ", ".join(map(quoted, _names(match[3])))))
    yield table(["view", "what it has", "columns"], rows)


def _names(selected: str) -> Iterator[str]:
    """The names of a view's columns: the last word of each part between commas that are in no parentheses."""
    depth, part = 0, ""
    for char in f"{selected},":
        depth += (char == "(") - (char == ")")
        if char == "," and not depth:
            yield part.rsplit(maxsplit=1)[-1].rsplit(".", 1)[-1]
            part = ""
        else:
            part += char


def _summaries(text: str) -> dict[str, str]:
    """What the head of the schema says about each table."""
    found: dict[str, str] = {}
    name = ""
    for line in text.split("CREATE", 1)[0].splitlines():
        first = re.match(r"^--   perdure\.(\w+) +(.*?)(?:  +key: .*)?$", line)
        more = re.match(r"^--  {6,}(.*?)$", line)
        if first is not None:
            name = first[1]
            found[name] = first[2].strip()
        elif more is not None and name:
            found[name] += f" {more[1].strip()}"
        else:
            name = ""
    return {each: f"{said[:1].upper()}{said[1:]}" for each, said in found.items()}


def _columns(comment: str, body: str) -> str:
    meanings: dict[str, str] = {}
    current: list[str] = []
    for line in comment.splitlines():
        names = re.match(r"^-- ([a-z_]+(?:, [a-z_]+)*) +(.*)$", line)
        if names is not None and _are_columns(names[1], body):
            current = names[1].split(", ")
            meanings |= dict.fromkeys(current, names[2])
        else:
            for name in current:
                meanings[name] += f" {line.removeprefix('--').strip()}"
    rows = [
        (
            quoted(column[1]),
            quoted(column[2]),
            "" if column[3] else "yes",
            meanings.get(column[1], ""),
        )
        for column in COLUMN.finditer(body)
    ]
    return table(["column", "type", "null", "meaning"], rows)


def _are_columns(names: str, body: str) -> bool:
    return all(re.search(rf"^    {name} ", body, re.MULTILINE) for name in names.split(", "))
