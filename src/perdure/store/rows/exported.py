"""A run as JSON lines: its row and balances first, then one line for each entry. Enough to replay it elsewhere."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from perdure.core.books import Books, verify_books
from perdure.core.errors import CorruptJournal
from perdure.core.journal.entry import Entry
from perdure.core.ledger import AccountId
from perdure.store.rows.records import Run
from perdure.store.rows.runs import ending_of

FORMAT = "perdure-run-1"
_REMEDY = "export the run again: perdure runs export RUN"


class ExportHeader(msgspec.Struct, frozen=True):
    """The first line."""

    format: str
    run: Run
    balances: dict[AccountId, int] = {}


def export_lines(
    run: Run, entries: Iterable[Entry], balances: dict[AccountId, int]
) -> Iterator[bytes]:
    yield msgspec.json.encode(ExportHeader(FORMAT, run, balances))
    yield from map(msgspec.json.encode, entries)


def read_export(lines: Sequence[bytes], name: str) -> tuple[Run, list[Entry]]:
    """The run and its journal. Raises `CorruptJournal` if the lines are not an unchanged export."""
    try:
        header = msgspec.json.decode(lines[0] if lines else b"", type=ExportHeader)
        entries = [msgspec.json.decode(line, type=Entry) for line in lines[1:]]
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptJournal(f"{name} is not an exported run ({error})", _REMEDY) from None
    if header.format != FORMAT:
        raise CorruptJournal(
            f"{name} has the format {header.format!r}", f"this Perdure reads {FORMAT}"
        )
    run = header.run
    books = Books(run.run_id, ending_of(run), tuple(entries), header.balances)
    findings = verify_books(books)
    if findings:
        raise CorruptJournal(f"{name} was changed: {findings[0]}", _REMEDY)
    return run, entries
