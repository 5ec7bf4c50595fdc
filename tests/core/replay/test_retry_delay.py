import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.journal.events import RetryPolicy
from perdure.core.replay.retry_delay import retry_at

NOW = 1_700_000_000_000

policies = st.builds(
    RetryPolicy,
    attempts=st.integers(1, 10_000),
    first_ms=st.integers(0, 1 << 40),
    factor=st.floats(1, 1e308),
    ceiling_ms=st.integers(0, 1 << 52),
)
shares = st.floats(0, 1)
chances = st.floats(0, 1, exclude_max=True)


def delay_ms(
    policy: RetryPolicy, failures: int, jitter: float = 0.0, chance: float = 0.0
) -> int | None:
    at = retry_at(policy, failures, NOW, jitter, chance)
    return None if at is None else at - NOW


def test_without_a_policy_there_is_no_second_attempt() -> None:
    assert retry_at(None, 1, NOW, 0.1, 0.5) is None


def test_there_are_as_many_attempts_as_the_policy_says() -> None:
    policy = RetryPolicy(attempts=3)
    assert [delay_ms(policy, failures) is None for failures in (1, 2, 3, 4)] == [
        False,
        False,
        True,
        True,
    ]


def test_the_delay_grows_by_the_factor_up_to_the_ceiling() -> None:
    policy = RetryPolicy(attempts=9, first_ms=100, factor=3.0, ceiling_ms=1000)
    assert [delay_ms(policy, failures) for failures in range(1, 6)] == [100, 300, 900, 1000, 1000]


@pytest.mark.parametrize(("chance", "expected_ms"), [(0.0, 1000), (0.5, 800), (0.75, 700)])
def test_jitter_is_the_random_share_subtracted_from_the_delay(
    chance: float, expected_ms: int
) -> None:
    assert delay_ms(RetryPolicy(attempts=2, first_ms=1000), 1, 0.4, chance) == expected_ms


def test_a_delay_too_large_for_a_float_is_the_ceiling() -> None:
    policy = RetryPolicy(attempts=9999, first_ms=1, factor=10.0, ceiling_ms=500)
    assert delay_ms(policy, 5000) == 500


def test_no_first_delay_means_no_delay_ever() -> None:
    policy = RetryPolicy(attempts=9999, first_ms=0, factor=10.0, ceiling_ms=500)
    assert [delay_ms(policy, failures) for failures in (1, 2, 5000)] == [0, 0, 0]


@given(policies, st.integers(1, 9_999), shares, chances)
def test_a_delay_is_never_negative_and_never_above_the_ceiling(
    policy: RetryPolicy, failures: int, jitter: float, chance: float
) -> None:
    delay = delay_ms(policy, failures, jitter, chance)
    assert delay is None or 0 <= delay <= policy.ceiling_ms


@given(policies, st.integers(1, 9_998))
def test_a_later_delay_is_never_shorter(policy: RetryPolicy, failures: int) -> None:
    earlier, later = delay_ms(policy, failures), delay_ms(policy, failures + 1)
    assert earlier is None or later is None or earlier <= later


@given(policies, st.integers(1, 9_999), shares, chances)
def test_jitter_subtracts_no_more_than_its_share(
    policy: RetryPolicy, failures: int, jitter: float, chance: float
) -> None:
    whole = delay_ms(policy, failures)
    delay = delay_ms(policy, failures, jitter, chance)
    assert (whole is None) == (delay is None)
    if whole is not None and delay is not None:
        assert (1 - jitter) * whole - 1 <= delay <= whole
