"""Output of commands: tables for people; JSON, JSON lines and ids for programs."""

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar

import msgspec
from cyclopts import Parameter
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from perdure.core.runs.waits import format_time

T = TypeVar("T")

Format = Literal["table", "json", "jsonl", "ids"]
FormatOption = Annotated[
    Format,
    Parameter(
        name=("--output", "-o"),
        help="table for people; json, or jsonl with one object per line, for programs; ids alone.",
    ),
]
ReportFormat = Literal["table", "json"]
ReportOption = Annotated[
    ReportFormat, Parameter(name=("--output", "-o"), help="table for people, json for programs.")
]

PIPED_WIDTH = 1000
"""Wide enough that lines in a pipe are neither wrapped nor cut."""


class Column(NamedTuple, Generic[T]):
    """A column of a table. `is_cut` marks the one that a narrow terminal shortens."""

    name: str
    text: Callable[[T], RenderableType]
    is_number: bool = False
    is_cut: bool = False


def console(*, is_error: bool = False) -> Console:
    """Colours and wrapping in a terminal, unless NO_COLOR is set; plain lines in a pipe.

    Replaces characters that can't be encoded.
    """
    stream = sys.stderr if is_error else sys.stdout
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="replace")
    found = Console(highlight=False, markup=False, emoji=False, stderr=is_error)
    if not found.is_terminal:
        found.width = PIPED_WIDTH
    return found


def print_values(
    values: Sequence[T], form: Format, columns: Sequence[Column[T]], id_of: Callable[[T], str]
) -> None:
    """Prints values in the chosen form. The JSON form of a value is that of its class."""
    if form == "json":
        print_json(values)
    elif form == "jsonl":
        print_lines(json.dumps(plain(value), ensure_ascii=False) for value in values)
    elif form == "ids":
        print_lines(map(id_of, values))
    else:
        console().print(table_of(values, columns))


def table_of(values: Iterable[T], columns: Sequence[Column[T]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(
            _unwrapped(column.name.upper()) if column.is_cut else column.name.upper(),
            justify="right" if column.is_number else "left",
            # A narrow table takes the width from columns that may wrap: a column that is not cut keeps its own.
            no_wrap=not column.is_cut,
            overflow="fold",
        )
    for value in values:
        table.add_row(
            *(
                _unwrapped(column.text(value)) if column.is_cut else column.text(value)
                for column in columns
            )
        )
    return table


def _unwrapped(content: RenderableType) -> RenderableType:
    """Text that is cut instead of wrapped."""
    if isinstance(content, str):
        content = Text(content)
    if isinstance(content, Text):
        content.no_wrap, content.overflow = True, "ellipsis"
    return content


def print_json(value: object) -> None:
    print_lines([json.dumps(plain(value), indent=2, ensure_ascii=False)])


def print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        sys.stdout.write(f"{line}\n")


def plain(value: object) -> Any:
    """A value as JSON has it. Bytes become text."""
    return msgspec.to_builtins(value, str_keys=True, enc_hook=str)


def printable(text: str) -> str:
    """Escapes control characters, so that stored text can't control the terminal."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def cell(text: str | None, style: str = "") -> Text:
    """Stored text in a table."""
    return Text(printable(text or ""), style=style)


def span(seconds: float) -> str:
    """A short duration: `0.4s`, `12s`, `3m 20s`, `5h 2m`, `3d 4h`."""
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = int(seconds)
    for size, unit, smaller, part in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "m"),
        (60, "m", 1, "s"),
    ):
        if whole >= size:
            return f"{whole // size}{unit} {whole % size // smaller}{part}"
    return f"{whole}s"


def took(duration_ms: int) -> str:
    """How long something took: `4ms`, `400ms`; from a second on as `span`."""
    return f"{max(0, duration_ms)}ms" if duration_ms < 1000 else span(duration_ms / 1000)


def age(at_ms: int | None, now_ms: int) -> str:
    """How long ago, or in what time."""
    if at_ms is None:
        return ""
    delta_s = (now_ms - at_ms) / 1000
    return f"{span(delta_s)} ago" if delta_s >= 0 else f"in {span(-delta_s)}"


def moment(at_ms: int | None) -> str:
    return "" if at_ms is None else format_time(at_ms)
