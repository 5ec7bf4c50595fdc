"""Messages in line: who is behind whom, and how many go together."""

import pytest

from perdure.core.ids import RunId, message_guid, new_run_id
from perdure.core.messages import Message
from perdure.host import line as lines
from perdure.host.line import Line

HERE, THERE = (new_run_id(1, bytes([n]) * 10) for n in range(2))


def message(name: str, run_id: RunId = HERE, payload: bytes = b"") -> Message:
    return Message(run_id, message_guid(HERE, name), "signal:go", 0, 0, payload=payload)


def line_of(*messages: Message) -> Line:
    line = Line()
    for each in messages:
        line.join(each)
    return line


A, B, C = map(message, "abc")


def test_those_behind_a_message_keep_their_order() -> None:
    line = line_of(A, B, C)
    assert line.behind(A) == [B, C]
    assert line.behind(B) == [C]
    assert line.behind(C) == []


def test_who_has_left_is_not_there() -> None:
    line = line_of(A, B, C)
    line.leave(B)
    assert B not in line
    assert line.behind(A) == [C]
    line.leave(B)
    assert A in line


def test_only_messages_to_the_same_run_go_together() -> None:
    line = line_of(A, message("x", THERE), B)
    assert line.behind(A) == []


def test_a_message_that_was_forwarded_keeps_its_place() -> None:
    follower = message("x", THERE)
    line = line_of(A, follower, B)
    assert line.behind(message("a", THERE)) == [follower]


def test_a_turn_takes_a_limited_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LONGEST", 2)
    assert line_of(A, B, C).behind(A) == [B]


def test_a_turn_takes_a_limited_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "HEAVIEST", 10)
    heavy = [message(name, payload=b"1234") for name in "abc"]
    assert line_of(*heavy).behind(heavy[0]) == heavy[1:2]
    alone = message("d", payload=b"12345678901")
    assert line_of(alone, B).behind(alone) == []
