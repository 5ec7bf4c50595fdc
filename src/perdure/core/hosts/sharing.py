"""How many runs a host takes at a time, of those that nobody advances."""

BATCH = 100
"""Runs that are taken and resumed before the next are: meanwhile others take theirs."""


def allowance(left: int, hosts: int, taken: int, room: int, *, is_new: bool) -> int:
    """How many runs to take next from a pile of which `left` are left, and `taken` were taken at this look.

    `hosts` are alive, this one included. Of a pile that is new to it a host takes its share, and leaves the others
    theirs; what is still there when it looks again it takes as fast as it can. Never more than it has `room` for.
    """
    share = -(-(left + taken) // hosts) if is_new else left + taken
    return max(0, min(share - taken, left, room, BATCH))
