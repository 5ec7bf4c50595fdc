"""`perdure audit` and `perdure verify`: the books and the hash chains of a store."""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from perdure.cli.exit_codes import FAILED
from perdure.cli.output import ReportOption, console, plain, print_json, printable
from perdure.cli.progress import ProgressLine
from perdure.cli.store_setting import StoreOption, existing_store
from perdure.core.errors import InputError
from perdure.core.ids import RunId, parse_run_id
from perdure.host.clock import HostSources
from perdure.store.inspection import OnRun, Report, audit_store, verify_store
from perdure.store.store import Store

RunsOption = Annotated[
    list[str],
    Parameter(name="--run", help="Only this run; may be repeated.", negative=()),
]
HeadsOption = Annotated[
    Path | None,
    Parameter(
        help="A file of heads: the length and last hash of each journal. Compares with it if it exists; "
        "if all is well, writes the heads of now to it. Keep it outside the store."
    ),
]
RunIds = list[RunId] | None


def audit_command(
    *, run: RunsOption | None = None, store: StoreOption = None, output: ReportOption = "table"
) -> int:
    """Compare the journal of each run with its ledger and its rows. The exit code is 1 if there are findings."""

    async def inspect(opened: Store, run_ids: RunIds, on_run: OnRun) -> Report:
        return await audit_store(opened, HostSources().now_ms(), run_ids, on_run)

    return _print(asyncio.run(_inspected("audit", store, run, inspect)), output)


def verify_command(
    *,
    run: RunsOption | None = None,
    heads: HeadsOption = None,
    store: StoreOption = None,
    output: ReportOption = "table",
) -> int:
    """Follow the hash chain of each journal: is every entry as it was written? The exit code is 1 if one is not."""
    kept = {} if heads is None or not heads.exists() else _read_heads(heads)

    async def inspect(opened: Store, run_ids: RunIds, on_run: OnRun) -> Report:
        return await verify_store(opened, kept, run_ids, on_run)

    report = asyncio.run(_inspected("verify", store, run, inspect))
    code = _print(report, output)
    if heads is not None and report.is_clean:
        _write_heads(heads, kept | {str(run_id): head for run_id, head in report.heads.items()})
        if output == "table":
            compared = f"compared with {len(kept):,} heads, " if kept else ""
            console().print(f"{compared}wrote {len(report.heads):,} heads to {heads}")
    return code


async def _inspected(
    what: str,
    url: str | None,
    runs: list[str] | None,
    inspect: Callable[[Store, RunIds, OnRun], Awaitable[Report]],
) -> Report:
    run_ids = [parse_run_id(run) for run in runs] if runs else None
    async with existing_store(url) as store:
        total = await store.count_all_runs() if run_ids is None else len(run_ids)
        with ProgressLine(what, total) as progress:
            return await inspect(store, run_ids, lambda _: progress.advance())


def _print(report: Report, output: str) -> int:
    if output == "json":
        print_json(plain(report) | {"clean": report.is_clean})
    else:
        screen = console()
        for line in str(report).splitlines():
            screen.print(printable(line), style="" if report.is_clean else "red", soft_wrap=True)
    return 0 if report.is_clean else FAILED


def _read_heads(file: Path) -> dict[str, str]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{file} can't be read ({error})", "pass a file of heads") from None
    if not isinstance(found, dict):
        raise InputError(f"{file} holds no heads", "pass a file that `verify` wrote")
    return found


def _write_heads(file: Path, heads: dict[str, str]) -> None:
    """Replaces the file in one step."""
    partial = file.with_name(file.name + ".partial")
    try:
        partial.write_text(json.dumps(heads, indent=0) + "\n", encoding="utf-8")
        os.replace(partial, file)
    except OSError as error:
        raise InputError(f"{file} can't be written ({error})", "pass a writable path") from None
