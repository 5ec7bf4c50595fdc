"""A run's row is checked against its journal before the run resumes."""

import msgspec
import pytest

from perdure.core.agreement import require_row
from perdure.core.books import RunRowSummary
from perdure.core.errors import BooksDiffer
from perdure.core.ids import RunId
from perdure.core.journal.events import ExecutionStarted
from perdure.core.journal.state import State

RUN = RunId("r_" + "0" * 32)
STATE = State()
FIRST = ExecutionStarted("checkout", "d1", "00" * 32, version="1")
ROW = RunRowSummary("checkout", "1", "d1", 1, b"", STATE.semaphore, STATE.status.value)


def test_a_row_that_agrees_with_the_first_entry_is_accepted() -> None:
    require_row(RUN, ROW, STATE, FIRST)


@pytest.mark.parametrize(
    ("column", "recorded"), [("program", "checkout"), ("version", "1"), ("digest", "d1")]
)
def test_a_changed_program_column_is_refused_with_both_values(column: str, recorded: str) -> None:
    row = msgspec.structs.replace(ROW, **{column: "other"})
    what = f"the {column} is 'other' in its row and '{recorded}' by its journal"
    with pytest.raises(BooksDiffer, match=what):
        require_row(RUN, row, STATE, FIRST)
