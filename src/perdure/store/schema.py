"""Schema versions: the n-th migration leads to version n, and a store says which one it has."""

from functools import cache
from importlib.resources import files

from perdure.core.errors import NotOurDatabase, SchemaTooNew, SchemaTooOld, StoreUnavailable


@cache
def migrations(dialect: str) -> tuple[str, ...]:
    """The migrations of a dialect, in order."""
    folder = files("perdure.store").joinpath("migrations", dialect)
    scripts = sorted((f for f in folder.iterdir() if f.name.endswith(".sql")), key=lambda f: f.name)
    return tuple(script.read_text(encoding="utf-8") for script in scripts)


def known_version(place: str, value: object, dialect: str) -> int:
    """A stored schema version as a number that this code can handle."""
    newest = len(migrations(dialect))
    if not isinstance(value, str) or not value.isdecimal():
        raise NotOurDatabase(
            f"{place} has Perdure's meta table, but no schema version in it ({value!r})",
            "restore it from a backup, or use another database",
        )
    if int(value) > newest:
        raise SchemaTooNew(
            f"{place} has schema version {value}, and this Perdure knows up to {newest}",
            "upgrade Perdure on this host before it opens the store",
        )
    return int(value)


def require_newest(place: str, version: int, dialect: str) -> None:
    """Refuse a store that would have to be brought up to date."""
    newest = len(migrations(dialect))
    if not version:
        raise no_store(place)
    if version < newest:
        raise SchemaTooOld(
            f"{place} has schema version {version}, and this Perdure works on {newest}",
            "open an engine of this Perdure with the code that runs now: it brings the store up to date",
        )


def no_store(place: str) -> StoreUnavailable:
    """There is nothing of ours, and nothing is to be made."""
    return StoreUnavailable(
        f"{place} holds no store of Perdure's", "check the URL; an engine makes one when it opens"
    )


def strange_tables(place: str, error: Exception) -> NotOurDatabase:
    """Tables by our names whose shape or number is not what their schema version says."""
    return NotOurDatabase(
        f"{place} has tables by Perdure's names that do not fit their schema version ({error})",
        "restore it from a backup, or use another database",
    )
