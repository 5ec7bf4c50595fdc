"""A network of a host's own, joined to this machine's by a cable that can be pulled. For root only."""

import os
import shutil
import subprocess
from types import TracebackType
from typing import Self


class Namespace:
    """A network namespace with one cable. A context manager."""

    def __init__(self, number: int) -> None:
        unique = os.getpid() * 4 + number
        network = f"10.{128 + unique // 256 % 128}.{unique % 256}"
        self.address = f"{network}.1"
        """This machine, as seen from there."""
        self._there = f"{network}.2"
        self._name = f"perdure-{os.getpid()}-{number}"
        self._cable = (f"pa{unique}", f"pb{unique}")
        self.prefix = ("ip", "netns", "exec", self._name)
        """What a command begins with to run there."""

    def __enter__(self) -> Self:
        ours, theirs = self._cable
        _ip("netns", "add", self._name)
        try:
            _ip("link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", self._name)
            _ip("address", "add", f"{self.address}/30", "dev", ours)
            _ip("link", "set", ours, "up")
            _ip("-n", self._name, "address", "add", f"{self._there}/30", "dev", theirs)
            self.mend()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._remove()

    def cut(self) -> None:
        """Pull the cable: what is sent is lost, and what is connected waits."""
        _ip("-n", self._name, "link", "set", self._cable[1], "down")

    def mend(self) -> None:
        _ip("-n", self._name, "link", "set", self._cable[1], "up")

    def _remove(self) -> None:
        # The cable goes with its end in the namespace.
        _ip("netns", "delete", self._name)


def why_not() -> str | None:
    """Why there can be no namespaces here; `None` if there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need the command `ip`"
    try:
        with Namespace(3):
            return None
    except subprocess.CalledProcessError as error:
        return f"no network namespaces here: {error.stderr.strip()}"


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
