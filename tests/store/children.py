"""Processes of their own on a store, and their output."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.paths import ROOT


class Child:
    """A started `tests.store.child`."""

    def __init__(self, url: str, *command: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.store.child", url, *command],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def begin(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def rest(self) -> list[str]:
        """All that it prints until it ends, without a line that a kill cut off."""
        assert self.process.stdout is not None
        heard = self.process.stdout.read()
        self.process.wait(30)
        return heard.split("\n")[:-1]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


@contextmanager
def children(count: int, url: str, *command: str) -> Iterator[list[Child]]:
    """`count` processes that have started and wait to begin."""
    started = [Child(url, *command) for _ in range(count)]
    try:
        for child in started:
            assert child.hear() == "ready"
        yield started
    finally:
        for child in started:
            child.close()
