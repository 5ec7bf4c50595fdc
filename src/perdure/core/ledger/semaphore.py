"""The semaphore of a run: the number of open obligations, and which message closed the last one."""

from dataclasses import dataclass

from perdure.core.errors import LedgerDecrement, SemaphoreUnderflow


@dataclass(frozen=True, slots=True)
class Settlement:
    """What step 2 does to the semaphore. The store compares `before` with the locked row."""

    before: int
    after: int
    threshold: int
    closed: bool

    @property
    def delta(self) -> int:
        return self.after - self.before


def settle(before: int, spawned: int, threshold: int = 0) -> Settlement:
    """One obligation closes and `spawned` children open.

    `closed` says that the semaphore now reads the threshold. Who settles is itself an open
    obligation, so at threshold 0 this happens once in the life of a run. At any other threshold the
    semaphore may come by more than once; then the first to say so is the one that counts.
    """
    if spawned < 0:
        raise LedgerDecrement(
            f"{spawned} children spawned (semaphore {before})",
            "pass how many children open, 0 or more",
        )
    if before < 1:
        raise SemaphoreUnderflow(
            f"nothing is open to be settled (semaphore {before}, {spawned} spawned)",
            "settle each obligation once: check the message's digits before step 2",
        )
    after = before + spawned - 1
    return Settlement(before, after, threshold, after == threshold)
