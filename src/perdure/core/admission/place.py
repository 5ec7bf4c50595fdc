"""The place of a pending run in line, for explanations."""

import msgspec


class PlaceInLine(msgspec.Struct, frozen=True):
    """What a pending run waits for: approval, a time, or a slot of a limit.

    `holding` runs hold the slot, and `running` may; `waiting` runs wait for it, this one included. `rate_until_ms` is
    when the rate allows the next run to begin.
    """

    needs_approval: bool = False
    ready_at_ms: int | None = None
    limit: str = ""
    key: str = ""
    holding: int = 0
    running: int | None = None
    waiting: int = 0
    rate_until_ms: int | None = None
