"""SQL from files: named statements, each headed by what it guarantees."""

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
def beat(dialect: str) -> str:
    """The statement by which a host gives a sign of life, and sees what `glance` shows."""
    sql = statements(dialect)
    return sql["beat"].replace(":glance", sql["glance"].removeprefix("SELECT"))


def _without_comments(sql: str) -> str:
    lines = (line for line in sql.splitlines() if not line.startswith("--"))
    return "\n".join(lines).strip().rstrip(";")
