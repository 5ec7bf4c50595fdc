"""Transactions in which users write their own rows, committed together with a run's books."""

from typing import Any, Protocol, TypeAlias, TypeVar

T = TypeVar("T")

Row: TypeAlias = dict[str, Any]
"""A row as a dict by column name, so that a task may return it."""


class Transaction(Protocol):
    """A transaction in the store's database, with the same interface on SQLite and Postgres.

    Parameters are `$1`, `$2` and so on. A failed statement ends the transaction: it is rolled
    back, and every later statement is refused.
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

    async def adopt(self, connection: T) -> T:
        """Use the transaction of your own session from now on, before the first statement; returns the session.

        On Postgres: SQLAlchemy's `AsyncSession` or `AsyncConnection`, psycopg's `AsyncConnection`. Perdure
        commits it or rolls it back, and closes it.
        """
        ...
