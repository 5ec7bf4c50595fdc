"""Message queues: order, batches, and merging with the store."""

import msgspec
import pytest

from perdure.core.ids import RunId, message_guid, new_run_id
from perdure.core.messages import Message
from perdure.host.messages import queue as queue_module
from perdure.host.messages.queue import MessageQueue

HERE, THERE = (new_run_id(1, bytes([n]) * 10) for n in range(2))


def message(name: str, run_id: RunId = HERE, payload: bytes = b"") -> Message:
    return Message(run_id, message_guid(HERE, name), "signal:go", 0, 0, payload=payload)


def queue_of(*messages: Message) -> MessageQueue:
    queue = MessageQueue(HERE)
    for each in messages:
        queue.join(each)
    return queue


A, B, C = map(message, "abc")


def test_messages_behind_a_message_keep_their_order() -> None:
    queue = queue_of(A, B, C)
    assert queue.behind(A) == [B, C]
    assert queue.behind(B) == [C]
    assert queue.behind(C) == []


def test_message_that_left_is_not_in_the_queue() -> None:
    queue = queue_of(A, B, C)
    queue.leave(B)
    assert B not in queue
    assert queue.behind(A) == [C]
    queue.leave(B)
    assert A in queue


def test_batch_holds_messages_to_one_run() -> None:
    queue = queue_of(A, message("x", THERE), B)
    assert queue.behind(A) == []


def test_forwarded_message_keeps_its_position() -> None:
    follower = message("x", THERE)
    queue = queue_of(A, follower, B)
    assert queue.behind(message("a", THERE)) == [follower]


def test_batch_has_limited_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_module, "MAX_BATCH", 2)
    assert queue_of(A, B, C).behind(A) == [B]


def test_batch_has_limited_payload_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_module, "MAX_BATCH_BYTES", 10)
    heavy = [message(name, payload=b"1234") for name in "abc"]
    assert queue_of(*heavy).behind(heavy[0]) == heavy[1:2]
    alone = message("d", payload=b"12345678901")
    assert queue_of(alone, B).behind(alone) == []


def test_messages_of_other_hosts_get_the_order_of_the_store() -> None:
    queue = queue_of(A)
    queue.join(C, is_ordered=False)
    assert queue.behind(A) == []
    queue.merge([A, B, C], queue.unordered, is_all=True)
    assert queue.waiting == [A, B, C]
    assert not queue.unordered
    assert queue.behind(A) == [B, C]


def test_result_keeps_its_position_and_timer_goes_last() -> None:
    result = msgspec.structs.replace(message("r"), kind="completed")
    timer = msgspec.structs.replace(message("t"), kind="timer")
    queue = queue_of(result)
    for each in (C, timer):
        queue.join(each, is_ordered=False)
    queue.merge([B, C, A], queue.unordered, is_all=True)
    assert queue.waiting == [result, B, C, A, timer]


def test_message_beyond_a_partial_read_stays_unordered() -> None:
    queue = queue_of()
    queue.join(C, is_ordered=False)
    queue.merge([A, B], queue.unordered, is_all=False)
    assert queue.waiting == [A, B, C]
    assert queue.unordered == {C.guid}


def test_message_enqueued_during_a_read_stays_unordered() -> None:
    queue = queue_of()
    queue.join(A, is_ordered=False)
    asked = queue.unordered
    queue.join(C, is_ordered=False)
    queue.merge([A], asked, is_all=True)
    assert queue.unordered == {C.guid}
