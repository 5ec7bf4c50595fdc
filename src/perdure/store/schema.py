"""Schema versions: the n-th migration leads to version n, and a store says which one it has."""

from functools import cache
from importlib.resources import files

from perdure.core.errors import NotOurDatabase, SchemaTooNew


@cache
def migrations(dialect: str) -> tuple[str, ...]:
    """The migrations of a dialect, in order."""
    folder = files("perdure.store").joinpath("migrations", dialect)
    scripts = sorted((f for f in folder.iterdir() if f.name.endswith(".sql")), key=lambda f: f.name)
    return tuple(script.read_text(encoding="utf-8") for script in scripts)


def known_version(place: str, value: str | None, dialect: str) -> int:
    """A stored schema version as a number that this code can handle."""
    newest = len(migrations(dialect))
    if value is None or not value.isdecimal():
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
