"""What this process needs: its resident memory, and the objects that the garbage collector looks through."""

import gc
import os
from pathlib import Path

_MB = 1_000_000
_PAGE = os.sysconf("SC_PAGE_SIZE")


def resident_mb() -> float:
    """Resident memory after a collection. Linux only."""
    gc.collect()
    resident = int(Path("/proc/self/statm").read_text().split()[1])
    return resident * _PAGE / _MB


def tracked_objects() -> int:
    """Objects that the garbage collector tracks, after a collection; frozen ones too."""
    gc.collect()
    return len(gc.get_objects()) + gc.get_freeze_count()
