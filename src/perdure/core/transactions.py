"""What users write their own rows with, so that these commit together with a run's books."""

from typing import Any, Protocol, TypeAlias

Row: TypeAlias = dict[str, Any]
"""A row by the names of its columns: plain, so that a task may return it."""


class Transaction(Protocol):
    """A transaction of the store's own database: SQL in, rows out, on either database in the same way.

    Parameters are `$1`, `$2` and so on. A statement that fails ends the transaction: nothing of it is
    written, and every later statement is refused.
    """

    async def execute(self, sql: str, *args: Any) -> int:
        """Execute one statement; returns how many rows it inserted, changed or deleted."""
        ...

    async def fetch(self, sql: str, *args: Any) -> list[Row]:
        """All rows of a statement."""
        ...

    async def fetch_one(self, sql: str, *args: Any) -> Row | None:
        """The first row; `None` if there is none."""
        ...

    async def fetch_value(self, sql: str, *args: Any) -> Any:
        """The first column of the first row; `None` if there is no row."""
        ...
