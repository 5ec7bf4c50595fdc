"""Opening a store by its URL."""

import re
from urllib.parse import SplitResult, parse_qs, urlsplit

from perdure.core.errors import InvalidUrl
from perdure.core.texts import require_storable_text
from perdure.store.process import never_free_in_child
from perdure.store.sqlite.store import SqliteStore
from perdure.store.store import Store

_FORMS = (
    "use 'sqlite:///file.db', 'sqlite:////absolute/path.db', 'sqlite:///:memory:' or "
    "'postgresql://user@host/database'"
)


async def open_store(url: str, *, as_it_is: bool = False, is_moving: bool = False) -> Store:
    """Open the store that `url` names, and bring its schema up to date.

    With `as_it_is`, opening creates and changes nothing: the store must exist and be up to date. With `is_moving`, it
    may be closed to engines because it is being moved; the caller has checked it.
    """
    require_storable_text("store URL", url)
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise InvalidUrl(f"{without_password(url)!r} is not a URL ({error})", _FORMS) from error
    store = await _opened(url, parts, as_it_is=as_it_is, is_moving=is_moving)
    never_free_in_child(store)
    return store


async def _opened(url: str, parts: SplitResult, *, as_it_is: bool, is_moving: bool) -> Store:
    if parts.scheme == "sqlite":
        return await _open_sqlite(url, parts, as_it_is=as_it_is, is_moving=is_moving)
    if parts.scheme in ("postgresql", "postgres"):
        # asyncpg is slow to import, and a SQLite store does not need it.
        from perdure.store.postgres.store import PostgresStore  # noqa: PLC0415

        return await PostgresStore.open(url, as_it_is=as_it_is, is_moving=is_moving)
    raise InvalidUrl(f"{without_password(url)!r} names no store", _FORMS)


def sqlite_path(url: str) -> str | None:
    """The file of a SQLite store; `None` if the URL is of another kind."""
    parts = urlsplit(url)
    return parts.path[1:] if parts.scheme == "sqlite" else None


async def _open_sqlite(url: str, parts: SplitResult, *, as_it_is: bool, is_moving: bool) -> Store:
    path = parts.path[1:]
    options = parse_qs(parts.query, keep_blank_values=True)
    adopt = options.pop("adopt", ["false"])
    strange = parts.netloc or parts.fragment or options
    if strange or not path or adopt not in (["true"], ["false"]):
        raise InvalidUrl(f"{url!r} is not a SQLite URL", _FORMS)
    return await SqliteStore.open(
        path, adopt=adopt == ["true"], as_it_is=as_it_is, is_moving=is_moving
    )


def without_password(url: str) -> str:
    return re.sub(r"(://[^/@]*?):[^/]*@", r"\1:***@", url)
