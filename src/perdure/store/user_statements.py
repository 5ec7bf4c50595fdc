"""Which statements a user's transaction may execute, judged by their text. Protects against accidents, not attacks.

On SQLite, an authorizer checks every table too. Postgres has no such check: a user's function or view may reach
Perdure's tables, and only the rights of the role that it connects with can forbid that.
"""

import re

from perdure.core.errors import ForbiddenStatement, InputError
from perdure.core.texts import require_storable_text

_CONTROL = frozenset(
    "ABORT BEGIN COMMIT END PREPARE RELEASE ROLLBACK SAVEPOINT START".split()  # noqa: SIM905 - a list of words
)
_SESSION = frozenset(
    "ATTACH DEALLOCATE DETACH DISCARD EXECUTE LISTEN PRAGMA RESET SET UNLISTEN VACUUM".split()  # noqa: SIM905
)

_UNREAD = frozenset(["DO"])

_BLANK = r"\s++|--[^\n]*+|/\*(?:[^*]|\*(?!/))*+\*/"
_FIRST_WORD = re.compile(rf"(?:{_BLANK}|;|\()*+([A-Za-z]++)")

_RENAMED_TO_US = re.compile(
    rf"""RENAME(?:{_BLANK})++TO(?:{_BLANK})*+["'`\[]?(?P<name>perdure_\w*)""", re.IGNORECASE
)

_NAMES_US = re.compile(
    rf"""
      \be'(?:[^'\\]|''|\\.)*'               # what is quoted in any way names no table
    | '(?:[^']|'')*'
    | \$(?P<tag>\w*)\$.*?\$(?P=tag)\$
    | {_BLANK}
    | (?P<escaped>U&")
    | (?P<schema>SCHEMA)(?![\w$])
    | (?<![\w$"])(?P<ours>perdure|"perdure")(?:{_BLANK})*\.
    | (?P<bare>(?:perdure|"perdure")(?![\w$"]))
    | "(?:[^"]|"")*"
    | [\w$]+
    | .
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)


def require_allowed(sql: object) -> str:
    """Refuse statements that end the transaction, or whose effect on the session would outlive it."""
    if not isinstance(sql, str):
        raise InputError(f"{sql!r} is not a statement", "pass SQL as text")
    require_storable_text("statement", sql)
    found = _FIRST_WORD.match(sql)
    if found is None:
        raise InputError(f"{sql!r} is not a statement", "pass one statement of SQL")
    word = found[1].upper()
    if word in _CONTROL:
        raise ForbiddenStatement(
            f"{word} in a transaction that Perdure ends itself",
            "return from it to commit, or raise to roll back",
        )
    if word in _SESSION:
        raise ForbiddenStatement(
            f"{word} would outlive the transaction, or needs none",
            "execute it on a connection of your own",
        )
    if word in _UNREAD:
        raise ForbiddenStatement(
            f"{word} hides the statements that it executes", "execute its statements one by one"
        )
    return sql


def require_no_schema_of_ours(sql: str) -> None:
    """Refuse a statement for Postgres that names Perdure's schema, or a table in it."""
    found = {match.lastgroup for match in _NAMES_US.finditer(sql)}
    if "ours" in found or {"schema", "bare"} <= found:
        raise our_table("schema perdure")
    if "escaped" in found:
        raise ForbiddenStatement(
            'a name with escapes (U&"...") may be one of Perdure\'s',
            "write the name without escapes",
        )


def require_no_name_of_ours(sql: str) -> None:
    """Refuse a statement for SQLite that gives a table one of Perdure's names: the authorizer sees no new names."""
    found = _RENAMED_TO_US.search(sql)
    if found is not None and sql.lstrip()[:5].upper() == "ALTER":
        raise our_table(f"name {found['name']!r}")


def our_table(what: str) -> ForbiddenStatement:
    return ForbiddenStatement(
        f"{what} is Perdure's own", "use the engine and its handles; keep to your own tables"
    )
