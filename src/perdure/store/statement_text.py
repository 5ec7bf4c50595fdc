"""Which statements a user's transaction may hold, as far as their text tells: against accidents, not adversaries.

What the text does not tell is found by the database: SQLite asks an authorizer about every table. Postgres
asks nobody: a function or a view of the user's may reach Perdure's tables, and only the rights of the role that it
connects with could forbid that.
"""

import re

from perdure.core.errors import ForbiddenStatement, InputError
from perdure.core.texts import require_text

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
    """Refuse what would end the transaction, or outlive it in the session of the connection."""
    if not isinstance(sql, str):
        raise InputError(f"{sql!r} is not a statement", "pass SQL as text")
    require_text("statement", sql)
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
            f"what {word} executes is not read here", "execute its statements one by one"
        )
    return sql


def require_no_schema_of_ours(sql: str) -> None:
    """Refuse a statement for Postgres that names Perdure's schema, or a table in it."""
    found = {match.lastgroup for match in _NAMES_US.finditer(sql)}
    if "ours" in found or {"schema", "bare"} <= found:
        raise our_table("schema perdure")
    if "escaped" in found:
        raise ForbiddenStatement(
            'a name with escapes (U&"...") could be any', "write the letters that it stands for"
        )


def require_no_name_of_ours(sql: str) -> None:
    """Refuse a statement for SQLite that would rename a table to one of Perdure's: its authorizer is not asked."""
    found = _RENAMED_TO_US.search(sql)
    if found is not None and sql.lstrip()[:5].upper() == "ALTER":
        raise our_table(f"name {found['name']!r}")


def our_table(what: str) -> ForbiddenStatement:
    return ForbiddenStatement(
        f"{what} is Perdure's own", "use the engine and its handles; keep to your own tables"
    )
