import asyncio
import gzip
from typing import Any

import pytest

from perdure import Engine
from perdure.asgi import app
from perdure.dashboard.pages import POLICY


async def ask(
    application: Any, path: str, *, method: str = "GET", root: str = "", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        await asyncio.sleep(0)
        sent.append(message)

    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "root_path": root,
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1"), *pairs],
        "client": ("127.0.0.1", 5),
        "server": ("127.0.0.1", 80),
        "scheme": "http",
    }
    await application(scope, receive, send)
    found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], found, b"".join(part.get("body", b"") for part in sent[1:])


async def test_the_page_comes_with_a_policy_that_allows_nothing_inline() -> None:
    status, headers, content = await ask(app(Engine("sqlite:///:memory:")), "/")
    assert status == 200
    assert headers["content-security-policy"] == POLICY
    assert "unsafe" not in POLICY
    assert b'<div id="app">' in content


async def test_a_page_that_has_not_changed_is_not_sent_again() -> None:
    application = app(Engine("sqlite:///:memory:"))
    _, headers, _ = await ask(application, "/")
    status, _, content = await ask(application, "/", if_none_match=headers["etag"])
    assert (status, content) == (304, b"")


async def test_pages_are_compressed_for_those_who_accept_it() -> None:
    application = app(Engine("sqlite:///:memory:"))
    _, _, plain = await ask(application, "/")
    _, headers, content = await ask(application, "/", accept_encoding="gzip, br")
    assert headers["content-encoding"] == "gzip"
    assert gzip.decompress(content) == plain
    _, headers, content = await ask(application, "/", method="HEAD")
    assert content == b""
    assert headers["content-length"] == str(len(plain))


async def test_pages_work_below_a_prefix() -> None:
    status, _, content = await ask(
        app(Engine("sqlite:///:memory:"), prefix="/perdure"), "/perdure/"
    )
    assert status == 200
    assert b'src="./assets/' in content
    status, _, _ = await ask(app(Engine("sqlite:///:memory:")), "/sub/icon.svg", root="/sub")
    assert status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/../pages.py",
        "/static/index.html",
        "/assets/../../pages.py",
        "//etc/passwd",
        "/assets",
        "/index.html/",
    ],
)
async def test_a_path_that_is_no_built_file_is_not_found(path: str) -> None:
    status, _, _ = await ask(app(Engine("sqlite:///:memory:")), path)
    assert status == 404
