"""What a SQLite file and its disk say about durability."""

import os
import time
from pathlib import Path
from statistics import median
from tempfile import NamedTemporaryFile

from perdure.store.rows.readings import Reading
from perdure.store.schema import migrations
from perdure.store.sqlite.connections.opening import connect_to_file

SYNCS = 9
"""How many times a small file is written and synchronized."""

SUSPICIOUSLY_FAST_MS = 0.02
"""A disk can't confirm a write in less: something answers for it."""


def diagnose_sqlite(path: str) -> list[Reading]:
    connection = connect_to_file(path)
    try:
        mode = str(connection.pragma("journal_mode"))
        free = int(connection.pragma("freelist_count")) / max(
            1, int(connection.pragma("page_count"))
        )
    finally:
        connection.close()
    size_mb = Path(path).stat().st_size / 1e6
    wal = Path(f"{path}-wal")
    wal_mb = wal.stat().st_size / 1e6 if wal.exists() else 0.0
    not_wal = (
        None if mode == "wal" else "stop all engines, and open the store once: it sets WAL mode"
    )
    return [
        Reading("schema version", str(len(migrations("sqlite")))),
        Reading("journal mode", mode, not_wal),
        Reading("file", f"{size_mb:,.1f} MB, {free:.0%} free, {wal_mb:,.1f} MB not checkpointed"),
        _sync_cost(Path(path).parent),
    ]


def _sync_cost(folder: Path) -> Reading:
    """What one fsync costs in the store's folder: each commit waits for one."""
    costs = []
    with NamedTemporaryFile(dir=folder, prefix=".perdure-doctor-") as file:
        for _ in range(SYNCS):
            file.write(b"perdure\n")
            file.flush()
            began = time.perf_counter()
            os.fsync(file.fileno())
            costs.append((time.perf_counter() - began) * 1000)
    cost = median(costs)
    problem = None
    if cost < SUSPICIOUSLY_FAST_MS:
        problem = (
            "the disk confirms writes before they can be durable: a power cut may lose commits"
        )
    return Reading("fsync", f"{cost:.2f} ms", problem)
