"""`--where`: the filters of a list in one text."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from perdure import InputError
from perdure.core.runs.where import merged, parse_where

NOW_MS = 1_800_000_000_000
NOW = datetime.fromtimestamp(NOW_MS / 1000, UTC)


@pytest.mark.parametrize(
    ("text", "filters"),
    [
        ("", {}),
        ("status=failed", {"status": "failed"}),
        ("status=failed,cancelled", {"status": ["failed", "cancelled"]}),
        (
            "program=checkout tag.customer=acme tag.plan='gold plus'",
            {"program": "checkout", "tags": {"customer": "acme", "plan": "gold plus"}},
        ),
        ("parked=true version=", {"parked": True, "version": ""}),
        ("created>2h", {"created": (None, NOW - timedelta(hours=2))}),
        (
            "created<3d created>90s",
            {"created": (NOW - timedelta(days=3), NOW - timedelta(seconds=90))},
        ),
        ("closed>=2026-01-31", {"closed": (datetime(2026, 1, 31, tzinfo=UTC), None)}),
        ("key_prefix=a=b", {"key_prefix": "a=b"}),
    ],
)
def test_conditions_become_the_filters_of_engine_runs(text: str, filters: dict[str, Any]) -> None:
    assert parse_where(text, NOW_MS) == filters


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("failed", "'failed' is no condition: write FIELD=VALUE"),
        ("state=failed", "'state' is no filter of runs: use one of status, program"),
        ("status>failed", "compares what has no order"),
        ("status!=failed", "compares what has no order"),
        ("created=2h", "use created>2h or created<2h"),
        ("created>soon", "is no time for created: write an age such as 90s"),
        ("created>9999999d", "is too long ago"),
        ("created>1h created>2h", "has two limits on one side"),
        ("status=failed status=running", "status is given twice"),
        ("tag.a=1 tag.a=2", "tag.a is given twice"),
        ("parked=yes", "write parked=true or parked=false"),
        ("program='a", "has an open quotation"),
        ("program=\x00", "U\\+0000|NUL|null"),
    ],
)
def test_wrong_condition_is_refused_with_what_to_write(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse_where(text, NOW_MS)


def test_options_add_to_the_conditions_and_may_not_repeat_them() -> None:
    found = parse_where("status=failed tag.a=1", NOW_MS)
    assert merged(found, {"program": "checkout", "version": None, "tags": {"b": "2"}}) == {
        "status": "failed",
        "program": "checkout",
        "tags": {"a": "1", "b": "2"},
    }
    with pytest.raises(InputError, match="status is given twice"):
        merged({"status": "failed"}, {"status": "running"})
