"""`perdure runs export`: a run as JSON lines."""

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path

from perdure import InputError
from perdure.cli.output import console
from perdure.cli.runs.reading import read_run
from perdure.cli.store_setting import StoreOption, existing_store
from perdure.store.rows.exported import ExportHeader, write_export

_PRIVATE = 0o600


def export(run: str, to: Path | None = None, /, *, store: StoreOption = None) -> int:
    """Write a run to a file, with all its payloads, so that `perdure replay` can debug it elsewhere.

    Parameters
    ----------
    run
        The id of a run.
    to
        The file to write, which must not exist. Default: RUN.jsonl in this folder.
    """
    lines = asyncio.run(_exported(run, store))
    file = to or Path(f"{run}.jsonl")
    _write(file, lines)
    console().print(
        f"{file}: {len(lines) - 1:,} entries; replay it with: perdure replay {file} MODULE:ENGINE"
    )
    return 0


async def _exported(name: str, url: str | None) -> list[bytes]:
    async with existing_store(url) as store:
        run, entries = await read_run(store, name)
        kept = (await store.retention.get([run.run_id])).get(run.run_id)
        header = ExportHeader(
            run=run,
            balances=await store.balances(run.run_id),
            receipt=None if kept is None else kept.receipt,
        )
        return list(write_export(header, entries))


def _write(file: Path, lines: Iterable[bytes]) -> None:
    """Writes a new file that only this user can read: it holds the users' data."""
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE)
    except OSError as error:
        raise InputError(
            f"{file} can't be written ({error.strerror})", "pass the path of a new file"
        ) from None
    with open(descriptor, "wb") as stream:
        stream.writelines(lines)
