"""The HTTP API and the dashboard as an ASGI application, to be served or mounted. It needs `perdure[server]`."""

from typing import TYPE_CHECKING

from perdure.client.engine import Engine
from perdure.core.errors import InputError
from perdure.dashboard.pages import Pages

if TYPE_CHECKING:
    from perdure.api.app import ApiApp


def app(engine: Engine, *, prefix: str = "") -> "ApiApp":
    """The HTTP API of an engine.

    Served alone, the application opens the engine and closes it. Mounted in another one (`Mount("/perdure", app)` of
    Starlette, `api.mount("/perdure", app)` of FastAPI), it uses the engine that the program around has opened. `prefix`
    is for programs that pass on paths as they are, such as a dispatcher beside Django.
    """
    try:
        from perdure.api.app import ApiApp  # noqa: PLC0415 - Starlette is an extra
    except ModuleNotFoundError as error:
        raise InputError(
            f"the HTTP API needs {error.name}, which is not installed",
            "install it: pip install 'perdure[server]'",
        ) from None
    return ApiApp(engine, prefix, Pages())
