"""Opening a store by its URL."""

from urllib.parse import parse_qs, urlsplit

from perdure.core.errors import InvalidUrl
from perdure.store.sqlite.store import SqliteStore
from perdure.store.store import Store

_FORMS = (
    "use 'sqlite:///file.db', 'sqlite:////absolute/path.db', 'sqlite:///:memory:' or "
    "'postgresql://user@host/database'"
)


async def open_store(url: str) -> Store:
    """Open the store that `url` names, and bring its schema up to date."""
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        return await _open_sqlite(url)
    if parts.scheme in ("postgresql", "postgres"):
        # asyncpg is slow to import, and a store in a file does not need it.
        from perdure.store.postgres.store import PostgresStore  # noqa: PLC0415

        return await PostgresStore.open(url)
    raise InvalidUrl(f"{url!r} names no store", _FORMS)


async def _open_sqlite(url: str) -> Store:
    parts = urlsplit(url)
    path = parts.path[1:]
    options = parse_qs(parts.query, keep_blank_values=True)
    adopt = options.pop("adopt", ["false"])
    if parts.netloc or not path or options or adopt not in (["true"], ["false"]):
        raise InvalidUrl(f"{url!r} is not a SQLite URL", _FORMS)
    return await SqliteStore.open(path, adopt=adopt == ["true"])
