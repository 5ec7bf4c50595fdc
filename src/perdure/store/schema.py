"""Schema versions: the n-th migration leads to version n, which the store records."""

from functools import cache
from importlib.resources import files

from perdure.core.errors import (
    NotOurDatabase,
    SchemaTooNew,
    SchemaTooOld,
    StoreMoved,
    StoreUnavailable,
)

MOVED = 1_000_000
"""Added to the version of a store that takes part in a move: engines of any version refuse it."""


@cache
def migrations(dialect: str) -> tuple[str, ...]:
    """The migrations of a dialect, in order."""
    folder = files("perdure.store").joinpath("migrations", dialect)
    scripts = sorted((f for f in folder.iterdir() if f.name.endswith(".sql")), key=lambda f: f.name)
    return tuple(script.read_text(encoding="utf-8") for script in scripts)


def known_version(place: str, value: object, dialect: str) -> int:
    """The stored schema version as a number; refuses one that this code does not know."""
    if not isinstance(value, str) or not value.isdecimal():
        raise NotOurDatabase(
            f"{place} has Perdure's meta table, but no schema version in it ({value!r})",
            "restore it from a backup, or use another database",
        )
    require_known(place, int(value), dialect)
    return int(value)


def require_known(place: str, version: int, dialect: str) -> None:
    """Refuse a store that a newer Perdure has migrated."""
    newest = len(migrations(dialect))
    if version >= MOVED:
        raise StoreMoved(
            f"{place} was moved to another store, or a move to or from it has not ended",
            "use the other store; repeat the command `perdure move` to end the move",
        )
    if version > newest:
        raise SchemaTooNew(
            f"{place} has schema version {version}, and this Perdure knows versions up to {newest}",
            "upgrade Perdure on this host before it opens the store",
        )


def require_newest(place: str, version: int, dialect: str) -> None:
    """Refuse a store that needs a migration."""
    newest = len(migrations(dialect))
    if not version:
        raise no_store(place)
    if version < newest:
        raise SchemaTooOld(
            f"{place} has schema version {version}, and this Perdure needs {newest}",
            "open an engine of this Perdure on the store once: it migrates the store",
        )


def no_store(place: str) -> StoreUnavailable:
    """The database has no tables of Perdure's, and none may be created."""
    return StoreUnavailable(
        f"{place} holds no store of Perdure's",
        "check the URL; an engine creates a store when it opens",
    )


def strange_tables(place: str, error: Exception) -> NotOurDatabase:
    """Tables with Perdure's names that do not match their schema version."""
    return NotOurDatabase(
        f"{place} has tables with Perdure's names that do not match their schema version ({error})",
        "restore it from a backup, or use another database",
    )
