"""How many runs a host takes over at a time, of those without a live owner."""

from collections.abc import Sequence

BATCH = 500
"""Runs that all hosts together take at a time, and resume before they take the next."""


FAIR_LOOKS = 3
"""Number of polls in a row at which a host takes at most its share. After that it takes all it has room for."""

MOST_COUNTED = 10_000
"""Hosts with at least so many open runs count as equal: to count more would cost more than it evens out."""


def allowance(left: int, owned: int, others: Sequence[int], room: int, *, looks: int) -> int:
    """How many runs to take next, with `left` runs left without a live owner.

    `owned` open runs are this host's, and `others` lists how many each of the other live hosts has. At its first polls
    (`looks`) a host takes runs up to an even level and leaves the rest to the others; runs that are still left later
    are for any host. What the hosts have and what is left add up to the same number while they take, so the level does
    not depend on which host is the first. Never more than there is `room` for.
    """
    share = left
    if looks <= FAIR_LOOKS:
        share = level(left, [owned, *others]) - owned
    return max(0, min(share, left, room, max(1, BATCH // (1 + len(others)))))


def level(left: int, counts: Sequence[int]) -> int:
    """The number of runs that the hosts with the fewest reach when these take all that is left."""
    below, most = 0, 0
    for number, count in enumerate(sorted(counts), 1):
        if number > 1 and count >= most:
            break
        below += count
        most = -(-(left + below) // number)
    return most


def room_after(batch: int, free_before: int, free: int) -> int:
    """The room for runs after a batch, given the free slots before and after it.

    If the batch used none of the scarce slots, the next one may be twice as large.
    """
    return 2 * batch if free >= free_before else free
