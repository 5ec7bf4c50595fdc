"""What paths lead to."""

from collections.abc import Callable, Iterable


def reached(starts: Iterable[str], after: Callable[[str], Iterable[str]]) -> set[str]:
    """The starts, and what is after any of them, near or far."""
    found = set(starts)
    waiting = list(found)
    while waiting:
        for name in after(waiting.pop()):
            if name not in found:
                found.add(name)
                waiting.append(name)
    return found
