"""`perdure runs history` and `ledger`: both books of a run, the entries with their postings beside them."""

import asyncio

import msgspec
from rich.text import Text

from perdure.cli.output import Column, FormatOption, cell, moment, print_values
from perdure.cli.runs.reading import read_run
from perdure.cli.store_setting import StoreOption, existing_store
from perdure.core.journal.entry import Entry
from perdure.core.journal.postings import effect_of
from perdure.core.ledger import digits_of, layout_of, spell_balance
from perdure.core.replay.matching import describe_event


class ShownEntry(msgspec.Struct, frozen=True):
    """An entry as it is printed. `postings` are increments by account."""

    seq: int
    at: str
    event: str
    what: str
    postings: dict[str, str]
    semaphore: int


class ShownAccount(msgspec.Struct, frozen=True):
    """An account as it is printed."""

    account: str
    balance: int
    text: str


def history(
    run: str, /, *, reveal: bool = False, store: StoreOption = None, output: FormatOption = "table"
) -> int:
    """Print the journal of a run, with what each entry posted to the ledger.

    Parameters
    ----------
    run
        The id of a run.
    reveal
        Print payloads, and not only their shapes.
    """

    async def read() -> list[Entry]:
        async with existing_store(store) as opened:
            return (await read_run(opened, run))[1]

    entries = [_entry(entry, reveal=reveal) for entry in asyncio.run(read())]
    columns: list[Column[ShownEntry]] = [
        Column("seq", lambda entry: str(entry.seq), is_number=True),
        Column("at", lambda entry: entry.at),
        Column("event", lambda entry: cell(entry.event, "bold")),
        Column("what", lambda entry: cell(entry.what), is_cut=True),
        Column("postings", _postings),
    ]
    print_values(entries, output, columns, lambda entry: str(entry.seq))
    return 0


def ledger(run: str, /, *, store: StoreOption = None, output: FormatOption = "table") -> int:
    """Print the ledger of a run: each account, its digits, and their meaning.

    Parameters
    ----------
    run
        The id of a run.
    """

    async def read() -> list[ShownAccount]:
        async with existing_store(store) as opened:
            row, _ = await read_run(opened, run)
            balances = await opened.balances(row.run_id)
        return [
            ShownAccount(account, balance, spell_balance(balance, layout_of(account)))
            for account, balance in balances.items()
        ]

    columns: list[Column[ShownAccount]] = [
        Column("account", lambda account: cell(account.account), is_cut=True),
        Column("balance", lambda account: cell(account.text)),
    ]
    print_values(asyncio.run(read()), output, columns, lambda account: account.account)
    return 0


def _entry(entry: Entry, *, reveal: bool) -> ShownEntry:
    event = entry.event
    name = type(event).__name__
    text = describe_event(event, reveal=reveal).removeprefix(f"{name}(").removesuffix(")")
    postings, semaphore = effect_of(event)
    posted = {str(account): digits_of(increment) for account, increment in postings}
    return ShownEntry(entry.seq, moment(entry.at_ms), name, text, posted, semaphore)


def _postings(entry: ShownEntry) -> Text:
    parts = [
        f"{account} +{increment.lstrip('0') or '0'}"
        for account, increment in entry.postings.items()
    ]
    if entry.semaphore:
        parts.append(f"semaphore {entry.semaphore:+d}")
    return cell("; ".join(parts))
