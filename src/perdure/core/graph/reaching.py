"""Reachability in a graph."""

from collections.abc import Callable, Iterable


def reached(starts: Iterable[str], after: Callable[[str], Iterable[str]]) -> set[str]:
    """The starts, and all that is reachable from them."""
    found = set(starts)
    waiting = list(found)
    while waiting:
        for name in after(waiting.pop()):
            if name not in found:
                found.add(name)
                waiting.append(name)
    return found
