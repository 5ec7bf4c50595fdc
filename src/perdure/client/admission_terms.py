"""What a caller asks of the admission of a start: priority, delay, approval, debouncing."""

from collections.abc import Mapping
from typing import Any, Final, TypedDict

from perdure.authoring.durations import Duration, milliseconds
from perdure.core.errors import InputError
from perdure.host.runs.batch import NO_TERMS, Terms

_MOST_URGENT: Final = 2**31 - 1
_DURATIONS: Final = ("delay", "debounce", "max_wait")


class StartTerms(TypedDict, total=False):
    """Options of a start that say when it may begin.

    Of the runs that wait for a limit in a scope, one with a higher `priority` begins first. With a `delay` the run is
    pending that long, and with `approval=True` until an operator approves it (`Handle.approve`). With `debounce`, which
    needs a key, the run is pending that long after the last start with its key: each of these gives it another input,
    and puts it off to `max_wait` after the first at most.
    """

    priority: int
    delay: Duration | None
    approval: bool
    debounce: Duration | None
    max_wait: Duration | None


def terms_from(given: Mapping[str, Any], key: object) -> Terms | None:
    """Validate the options; `None` if the caller gave none that matters."""
    unknown = sorted(given.keys() - StartTerms.__annotations__.keys())
    if unknown:
        raise TypeError(f"start() got an unexpected keyword argument {unknown[0]!r}")
    if not given:
        return None
    priority, approval = given.get("priority", 0), given.get("approval", False)
    if isinstance(priority, bool) or not isinstance(priority, int) or abs(priority) > _MOST_URGENT:
        raise InputError(
            f"priority is {priority!r:.100}", f"pass a whole number up to {_MOST_URGENT}"
        )
    if not isinstance(approval, bool):
        raise InputError(f"approval is {approval!r:.100}", "pass True or False")
    delay, debounce = given.get("delay"), given.get("debounce")
    terms = Terms(
        priority,
        0 if delay is None else milliseconds(delay, "delay"),
        approval,
        *_debounce(debounce, given.get("max_wait"), key),
    )
    if terms.debounce_ms and (terms.delay_ms or approval):
        raise InputError(
            "a start with debounce, and with delay or approval", "pass debounce without the other"
        )
    return None if terms == NO_TERMS else terms


def _debounce(debounce: Any, max_wait: Any, key: object) -> tuple[int, int]:
    if debounce is None:
        if max_wait is not None:
            raise InputError(f"max_wait is {max_wait!r} without debounce", "pass debounce=..., too")
        return 0, 0
    if key is None:
        raise InputError(
            "a start with debounce, and without a key", "pass the key that its starts share"
        )
    debounce_ms = milliseconds(debounce, "debounce")
    if not debounce_ms:
        raise InputError(f"debounce is {debounce!r}", "pass a positive number of seconds")
    max_wait_ms = 10 * debounce_ms if max_wait is None else milliseconds(max_wait, "max_wait")
    if max_wait_ms < debounce_ms:
        raise InputError(
            f"max_wait is {max_wait!r}, and debounce {debounce!r}", "make it at least as long"
        )
    return debounce_ms, max_wait_ms


def terms_in_seconds(terms: StartTerms) -> dict[str, Any]:
    """The options with their durations in seconds, as JSON has them."""
    return {
        name: milliseconds(value, name) / 1000
        if name in _DURATIONS and value is not None
        else value
        for name, value in dict[str, Any](terms).items()
    }
