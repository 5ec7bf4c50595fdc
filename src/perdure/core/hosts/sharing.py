"""How many runs a host takes at a time, of those that nobody advances."""

BATCH = 500
"""Runs that all hosts together take at a time, and resume before they take the next."""


FAIR_LOOKS = 3
"""So often a host looks at a pile and takes no more than its share. Then it takes what it can."""


def allowance(left: int, hosts: int, taken: int, room: int, *, looks: int) -> int:
    """How many runs to take next from a pile of which `left` are left, and `taken` were taken at this look.

    `hosts` are alive, this one included. At its first `looks` a host takes its share, and leaves the others theirs;
    what is still there then nobody else seems to want. Never more than it has `room` for.
    """
    share = -(-(left + taken) // hosts) if looks <= FAIR_LOOKS else left + taken
    return max(0, min(share - taken, left, room, max(1, BATCH // hosts)))


def room_after(batch: int, free_before: int, free: int) -> int:
    """How many runs there is room for after a batch, given how many slots were free before it and are now.

    What was taken may need other slots than those that are scarce, or none: then twice as many may come next.
    """
    return 2 * batch if free >= free_before else free
