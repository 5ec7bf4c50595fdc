"""Statements that differ in their locks, or in little else, stay alike."""

from perdure.store.statements import statements

POSTGRES = statements("postgres")
LOCK = "FOR NO KEY UPDATE OF locked"


CLOSING = (
    ",\n    closed_at_ms = coalesce(b.closed_at_ms, run.closed_at_ms)",
    ",\n    owner = CASE WHEN b.closed_at_ms IS NULL THEN run.owner END",
    ", $9::bigint[]",
    ", b.closed_at_ms",
    ", closed_at_ms",
)
"""What `end_runs` has besides: it closes the runs that end."""


def test_small_groups_in_which_runs_end_differ_in_the_lock_only() -> None:
    steps, ends = POSTGRES["commit_books"], POSTGRES["end_books"]
    assert steps.count(LOCK) == 1
    assert ends == steps.replace(LOCK, "FOR UPDATE OF locked NOWAIT")


def test_groups_in_which_runs_end_differ_in_the_lock_and_close_runs() -> None:
    steps, ends = POSTGRES["advance_runs"], POSTGRES["end_runs"]
    assert steps.count(LOCK) == 1
    for text in CLOSING:
        assert text in ends
        ends = ends.replace(text, "")
    assert ends == steps.replace(LOCK, "FOR UPDATE OF locked")
