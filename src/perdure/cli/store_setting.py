"""Which store a command uses: `--store`, else PERDURE_STORE, else `perdure.toml`; and opening that store."""

import os
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from perdure.core.errors import InputError
from perdure.store.opening import open_store
from perdure.store.store import Store

VARIABLE = "PERDURE_STORE"
FILE = "perdure.toml"

StoreOption = Annotated[
    str | None,
    Parameter(
        name="--store",
        help=f"URL of the store, such as 'sqlite:///orders.db' or 'postgresql://user@host/database'. "
        f"Default: {VARIABLE}, else `store` in the {FILE} of this folder or the nearest one above.",
    ),
]

_RELATIVE = "sqlite:///"
_ABSOLUTE = "sqlite:////"
_MEMORY = "sqlite:///:memory:"


def store_url(given: str | None) -> str:
    """The URL of the store that the command uses. Raises `InputError` if none is named."""
    if given is not None:
        return given
    if named := os.environ.get(VARIABLE):
        return named
    folder = Path.cwd()
    for each in (folder, *folder.parents):
        if (each / FILE).is_file():
            return _store_in(each / FILE)
    raise InputError(
        "no store is named",
        f'pass --store URL, or set {VARIABLE}, or write store = "URL" into {FILE}',
    )


@asynccontextmanager
async def existing_store(given: str | None) -> AsyncIterator[Store]:
    """Opens the store that the command uses. It must exist: a mistyped URL creates nothing."""
    store = await open_store(store_url(given), as_it_is=True)
    try:
        yield store
    finally:
        await store.close()


def _store_in(file: Path) -> str:
    """The `store` of the file. A relative SQLite path is relative to the file's folder."""
    try:
        settings: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{file} can't be read ({error})", "make it a valid TOML file") from None
    unknown = sorted(settings.keys() - {"store"})
    if unknown:
        raise InputError(f"{file} has the setting {unknown[0]!r}", "the only setting is `store`")
    url = settings.get("store")
    if not isinstance(url, str) or not url:
        raise InputError(f"{file} has no `store`", 'write store = "sqlite:///orders.db" into it')
    if url.startswith(_RELATIVE) and not url.startswith((_ABSOLUTE, _MEMORY)):
        return f"{_RELATIVE}{file.parent.resolve()}/{url.removeprefix(_RELATIVE)}"
    return url
