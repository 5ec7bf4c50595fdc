"""The JSON form of a ledger."""

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from perdure.core.errors import InputError
from perdure.core.operations.data import LedgerData, OperationState, StackFrame, decode, encode

AT = datetime(2026, 1, 22, 12, tzinfo=UTC)
FRAME = StackFrame(call_id="c", participant_id="a", pid=1, start_time=AT, last_heartbeat=AT)
DATA = LedgerData(
    operation_id="op",
    initiator_id="a",
    start_time=AT,
    operation_state=OperationState.RUNNING,
    last_heartbeat=AT,
    stack=(FRAME,),
)


def test_a_written_ledger_is_read_back_equal() -> None:
    assert decode(encode(DATA), "here") == DATA


@pytest.mark.parametrize(
    "wrong", [{"pid": "12x"}, {"pid": 1.5}, {"fail_on_crash": None}, {"description": object()}]
)
def test_a_ledger_that_could_not_be_read_back_is_not_written(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="operation 'op' would not be readable"):
        encode(replace(DATA, stack=(replace(FRAME, **wrong),)))


def test_a_time_without_a_zone_is_utc() -> None:
    assert decode(encode(DATA).replace(b'00Z"', b'00"'), "here") == DATA
