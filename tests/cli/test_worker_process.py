"""What a worker's process sees to before its program is imported."""

import gc
import socket

import pytest

from perdure import Engine, InputError
from perdure.cli.worker.process import COLLECT_AFTER, Order, work
from perdure.cli.worker.supervision import UNUSABLE


def test_a_program_finds_the_collector_tuned_and_may_know_better(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = gc.get_threshold()
    found = []

    def look(_: Order) -> Engine:
        found.append(gc.get_threshold())
        raise InputError("nothing to do", "look elsewhere")

    monkeypatch.setattr(Order, "engine", look)
    ours, theirs = socket.socketpair()
    try:
        with ours, theirs:
            assert work(Order("nothing"), ours) == UNUSABLE
    finally:
        gc.set_threshold(*before)
    assert found == [COLLECT_AFTER]
