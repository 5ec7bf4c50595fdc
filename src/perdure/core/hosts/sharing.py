"""How many runs a host takes over at a time, of those without a live owner."""

BATCH = 500
"""Runs that all hosts together take at a time, and resume before they take the next."""


FAIR_LOOKS = 3
"""Number of polls at which a host takes at most its share. After that it takes all it has room for."""


def allowance(left: int, hosts: int, taken: int, room: int, *, looks: int) -> int:
    """How many runs to take next, with `left` unowned runs left and `taken` of them taken at this poll.

    `hosts` is the number of live hosts, this one included. At its first polls (`looks`) a host takes its share and
    leaves the rest to the others; runs still unowned later are for any host. Never more than there is `room` for.
    """
    share = -(-(left + taken) // hosts) if looks <= FAIR_LOOKS else left + taken
    return max(0, min(share - taken, left, room, max(1, BATCH // hosts)))


def room_after(batch: int, free_before: int, free: int) -> int:
    """The room for runs after a batch, given the free slots before and after it.

    If the batch used none of the scarce slots, the next one may be twice as large.
    """
    return 2 * batch if free >= free_before else free
