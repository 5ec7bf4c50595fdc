"""Whether a failed attempt is tried again, and when."""

from perdure.core.journal.events import RetryPolicy


def retry_at(
    policy: RetryPolicy | None, failures: int, now_ms: int, jitter: float, chance: float
) -> int | None:
    """When the next attempt is due after so many failures; `None` if there is none.

    The delay grows by the policy's factor up to its ceiling; `jitter` is the share of it that `chance`,
    a number in [0, 1), takes away.
    """
    if policy is None or failures >= policy.attempts:
        return None
    try:
        delay = policy.first_ms * policy.factor ** (failures - 1)
    except OverflowError:
        delay = policy.ceiling_ms if policy.first_ms else 0
    delay = min(delay, policy.ceiling_ms)
    return now_ms + round(delay * (1 - jitter * chance))
