"""When work on a queue may be due, by its journal."""

import pytest

from perdure.core.ids import Guid, HostId
from perdure.core.messages import WorkSummary, at_once
from perdure.core.obligations import Lifetime, is_misdated

BEGAN, NOW = 1_700_000_000_000, 1_700_000_600_000
DAY = 86_400_000
RETRY = NOW + 60_000
LIFE = Lifetime(BEGAN, NOW)


def work(available_at_ms: int, host: str | None = None) -> WorkSummary:
    return WorkSummary(Guid("m"), "q", available_at_ms, None if host is None else HostId(host))


POSSIBLE = {
    "put": (at_once(BEGAN), 0),
    "given back": (at_once(NOW), 0),
    "postponed": (NOW + 60_000, 0),
    "postponed by another clock": (NOW + DAY, 0),
    "retry": (RETRY, RETRY),
    "retry that was given back": (at_once(RETRY), RETRY),
    "retry in a year": (NOW + 365 * DAY, NOW + 365 * DAY),
}
IMPOSSIBLE = {
    "never": (9 * 10**15, 0),
    "later than in a day": (NOW + DAY + 1, 0),
    "before the run began": (BEGAN - DAY - 1, 0),
    "long before all hosts' clocks": (at_once(BEGAN) - 3 * DAY, 0),
    "retry that is early": (RETRY - 1, RETRY),
    "retry that is late": (RETRY + DAY, RETRY),
    "retry that is due at once": (at_once(RETRY) - 3 * DAY, RETRY),
}


@pytest.mark.parametrize("name", POSSIBLE)
def test_time_that_hosts_may_have_set_is_no_difference(name: str) -> None:
    available, due = POSSIBLE[name]
    assert not is_misdated(work(available), due, LIFE)


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_time_that_no_host_sets_is_a_difference(name: str) -> None:
    available, due = IMPOSSIBLE[name]
    assert is_misdated(work(available), due, LIFE)
    assert not is_misdated(work(available, host="h"), due, LIFE), "the lease decides"
