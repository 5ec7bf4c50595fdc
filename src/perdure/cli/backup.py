"""`perdure backup`: a consistent copy of a live SQLite store."""

import asyncio
from pathlib import Path

from perdure.cli.output import console
from perdure.cli.progress import ProgressLine
from perdure.cli.store_setting import StoreOption, store_url
from perdure.store.backup import back_up
from perdure.store.inspection import Report


def backup(to: Path, /, *, store: StoreOption = None) -> int:
    """Copy a SQLite store to a new file while engines work on it, and verify the copy.

    The copy is the store as it was when the command began. It gets its name only when it is complete and verified.

    Parameters
    ----------
    to
        The file to write. It must not exist.
    """
    report = asyncio.run(_backed_up(store_url(store), to))
    size_mb = to.stat().st_size / 1e6
    counted = f"runs {report.runs:,}, entries {report.entries:,}, {size_mb:,.1f} MB"
    console().print(f"{to}: complete and verified ({counted})")
    return 0


async def _backed_up(url: str, to: Path) -> Report:
    with ProgressLine("copy, pages") as copied, ProgressLine("verify, runs") as verified:
        return await back_up(url, to, copied.reach, lambda _: verified.advance())
