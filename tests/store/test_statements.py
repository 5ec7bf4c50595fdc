"""Statements that differ in their locks only stay alike."""

import pytest

from perdure.store.statements import statements

POSTGRES = statements("postgres")
LOCK = "FOR NO KEY UPDATE OF locked"


@pytest.mark.parametrize(
    ("ordinary", "for_ends", "stronger"),
    [
        ("advance_runs", "end_runs", "FOR UPDATE OF locked"),
        ("commit_books", "end_books", "FOR UPDATE OF locked NOWAIT"),
    ],
)
def test_ends_of_runs_differ_from_steps_in_the_lock_only(
    ordinary: str, for_ends: str, stronger: str
) -> None:
    assert POSTGRES[ordinary].count(LOCK) == 1
    assert POSTGRES[for_ends] == POSTGRES[ordinary].replace(LOCK, stronger)
