"""Named SQL statements from files, each headed by what it guarantees."""

import re
from functools import cache
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


@cache
def statements(dialect: str) -> dict[str, str]:
    """The statements of `sql/<dialect>.sql` by name."""
    text = files("perdure.store").joinpath("sql", f"{dialect}.sql").read_text(encoding="utf-8")
    parts = _NAME.split(text)[1:]
    return {
        name: _without_comments(body) for name, body in zip(parts[::2], parts[1::2], strict=True)
    }


@cache
def heartbeat_statement(dialect: str) -> str:
    """The statement that records a host's heartbeat and returns the columns of `host_snapshot`."""
    sql = statements(dialect)
    return sql["beat"].replace(":host_snapshot", sql["host_snapshot"].removeprefix("SELECT"))


def _without_comments(sql: str) -> str:
    lines = (line for line in sql.splitlines() if not line.startswith("--"))
    return "\n".join(lines).strip().rstrip(";")
