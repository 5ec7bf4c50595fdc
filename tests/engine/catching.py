"""Shared by explorations of seeded bugs: the explorer must fail, and name a schedule."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from perdure.testing.explorer import ScheduleFailed

Record = Callable[[str, object], None]
"""pytest's `record_property`."""


@contextmanager
def catching(what: str, symptom: str, record: Record) -> Iterator[None]:
    """A block in which the explorer must fail with this symptom. Records the schedule under the name `what`."""
    with pytest.raises(ScheduleFailed, match=symptom) as caught:
        yield
    schedule = str(caught.value).rpartition("schedule\n")[2]
    assert schedule.strip()
    record("explored", f"{what}: {' '.join(schedule.split())}")
