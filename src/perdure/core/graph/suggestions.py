"""Suggestions for misspelled names."""

from collections.abc import Iterable
from difflib import get_close_matches

_MOST = 20


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that `name` most likely misspells."""
    likely = [
        each
        for each in dict.fromkeys(known)
        if abs(len(each) - len(name)) <= 3 and (each[:1] == name[:1] or each[-1:] == name[-1:])
    ]
    likely.sort(key=lambda each: abs(len(each) - len(name)))
    found = get_close_matches(name, likely[:_MOST], n=1, cutoff=0.6)
    return found[0] if found else None


def did_you_mean(name: str, known: Iterable[str], otherwise: str) -> str:
    """A remedy: the nearest name, or else `otherwise`."""
    meant = nearest(name, known)
    return otherwise if meant is None else f"did you mean {meant!r}?"
