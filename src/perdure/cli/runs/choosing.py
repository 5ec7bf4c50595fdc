"""Which runs a command acts on, and whether the user means it."""

import asyncio
import sys
from collections.abc import Sequence

from perdure import InputError
from perdure.cli.front_end import front_end
from perdure.core.runs.where import parse_where
from perdure.host.clock import HostSources


def named_runs(runs: Sequence[str] | None, where: str | None, store: str | None) -> list[str]:
    """The runs that are given by id, or that match."""
    if (where is None) == (not runs):
        raise InputError("the runs are not given, or given twice", "pass ids, or --where")
    if where is None:
        return list(runs or ())
    filters = parse_where(where, HostSources().now_ms())
    if not filters:
        raise InputError("--where has no condition", "it would match every run: write at least one")

    async def read() -> list[str]:
        async with front_end(store) as engine:
            return [run.run_id async for run in engine.iterate_runs(**filters)]

    return asyncio.run(read())


def confirm(count: int) -> None:
    """Asks the user in a terminal; elsewhere `--yes` is needed."""
    if not sys.stdin.isatty():
        raise InputError(
            f"{count:,} runs match", "pass --yes to act on them, or --dry-run to see them"
        )
    print(f"{count:,} runs match. Act on them? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise InputError("not confirmed", "nothing was changed")
