from collections.abc import Sequence
from dataclasses import FrozenInstanceError
from datetime import timedelta
from typing import Any

import pytest

from perdure import InputError, Retry
from perdure.core.journal.events import RetryPolicy


def test_a_policy_holds_what_the_journal_records() -> None:
    retry = Retry(attempts=5, first=0.5, factor=3, ceiling=timedelta(minutes=1), jitter=0.2)
    assert retry.policy == RetryPolicy(attempts=5, first_ms=500, factor=3, ceiling_ms=60_000)


def test_a_retry_without_options_tries_three_times() -> None:
    assert Retry().policy == RetryPolicy(attempts=3, first_ms=1000, factor=2.0, ceiling_ms=60_000)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"attempts": 0}, "attempts is 0: the first attempt counts: pass 1 or more"),
        ({"attempts": 1.5}, "attempts is 1.5: pass a whole number"),
        ({"attempts": True}, "attempts is True: pass a whole number"),
        ({"factor": 0.9}, "factor is 0.9: pass a number of at least 1"),
        ({"factor": float("nan")}, "factor is nan: pass a number of at least 1"),
        ({"factor": float("inf")}, "factor is inf: pass a number of at least 1"),
        ({"factor": "2"}, "factor is '2': pass a number of at least 1"),
        ({"factor": 10**400}, f"factor is {10**400}: pass a number of at least 1"),
        ({"jitter": -0.1}, "jitter is -0.1: pass a share between 0 and 1"),
        ({"jitter": 1.1}, "jitter is 1.1: pass a share between 0 and 1"),
        ({"jitter": float("nan")}, "jitter is nan: pass a share between 0 and 1"),
        ({"jitter": "0"}, "jitter is '0': pass a share between 0 and 1"),
        ({"first": -1}, "first is -1: pass a duration of at least 0 that is finite"),
        ({"ceiling": "1 m"}, "ceiling is '1 m': pass seconds as a number, or a timedelta"),
        ({"on": "ValueError"}, "on holds 'V': pass classes of exceptions"),
        ({"on": ValueError()}, "on holds ValueError(): pass classes of exceptions"),
        ({"on": (int,)}, "on holds <class 'int'>: pass classes of exceptions"),
        (
            {"give_up_on": KeyboardInterrupt},
            "give_up_on holds <class 'KeyboardInterrupt'>: pass classes of exceptions",
        ),
    ],
)
def test_a_wrong_option_is_refused_by_name(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError) as caught:
        Retry(**wrong)
    assert str(caught.value) == text


@pytest.mark.parametrize("right", [{"factor": 1}, {"jitter": 0}, {"jitter": 1}, {"attempts": 1}])
def test_a_value_at_its_bound_is_accepted(right: dict[str, Any]) -> None:
    Retry(**right)


def test_every_exception_is_retried_by_default() -> None:
    assert Retry().covers(ValueError())


def test_base_exceptions_are_never_retried() -> None:
    assert not Retry().covers(KeyboardInterrupt())


@pytest.mark.parametrize("on", [LookupError, [LookupError], (OSError, LookupError)])
def test_on_covers_its_types_and_their_subclasses(
    on: type[Exception] | Sequence[type[Exception]],
) -> None:
    assert Retry(on=on).covers(KeyError())


def test_on_covers_nothing_else() -> None:
    assert not Retry(on=LookupError).covers(ValueError())


@pytest.mark.parametrize("give_up_on", [KeyError, [KeyError], (OSError, KeyError)])
def test_give_up_on_overrides_on(
    give_up_on: type[Exception] | Sequence[type[Exception]],
) -> None:
    retry = Retry(on=LookupError, give_up_on=give_up_on)
    assert retry.covers(IndexError())
    assert not retry.covers(KeyError())


def test_a_retry_can_be_shared_because_it_never_changes() -> None:
    with pytest.raises(FrozenInstanceError):
        Retry().attempts = 2  # type: ignore[misc]
