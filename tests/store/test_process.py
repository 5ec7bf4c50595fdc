"""Objects that belong to one process, after a fork."""

import os

import pytest

from perdure.core.errors import UsedAfterFork
from perdure.store.process import OwnProcess, never_free_in_child


class Closing:
    """Closes something when it is freed."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe

    def __del__(self) -> None:
        os.write(self._pipe, b"closed")


def test_bound_object_is_not_freed_in_a_forked_child() -> None:
    reader, writer = os.pipe()
    freed, bound = Closing(writer), Closing(writer)
    never_free_in_child(bound)
    pid = os.fork()
    del freed, bound
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(writer)
    # The parent frees both, the child only the one that is not bound.
    assert os.read(reader, 100) == b"closed" * 3
    os.close(reader)


def test_error_names_the_object_and_both_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    process = OwnProcess("an engine on sqlite:///orders.db")
    process.require()
    pid = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: pid + 1)
    assert not process.is_here
    with pytest.raises(UsedAfterFork) as caught:
        process.require()
    assert str(caught.value) == (
        f"an engine on sqlite:///orders.db was opened in process {pid} and is used in process {pid + 1}, which was "
        "forked from it: open it after the fork, in each process: in a lifespan, or in a post_fork hook"
    )
