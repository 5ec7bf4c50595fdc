"""What a diagnosis of a store found out."""

from typing import NamedTuple


class Reading(NamedTuple):
    """One thing that was found out; `problem` says what is wrong with it, and what to do."""

    what: str
    value: str
    problem: str | None = None
