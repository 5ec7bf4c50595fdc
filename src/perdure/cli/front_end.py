"""An engine that executes nothing, for commands that look at runs or send them something."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Unpack

from perdure import Engine, EngineServices, InputError
from perdure.cli.store_setting import existing_store, store_url


@asynccontextmanager
async def front_end(given: str | None, **services: Unpack[EngineServices]) -> AsyncIterator[Engine]:
    """Opens an engine with `hosts=False` on the store that the command uses. The store must exist."""
    url = store_url(given)
    async with existing_store(url):
        pass  # an engine would create it
    async with Engine(url, hosts=False, **services) as engine:
        yield engine


def json_value(text: str) -> Any:
    """A value that the user wrote as JSON."""
    try:
        return json.loads(text)
    except ValueError as error:
        example = json.dumps(text)
        raise InputError(
            f"{text!r} is not JSON ({error})", f"write a text with its quotes: '{example}'"
        ) from None
