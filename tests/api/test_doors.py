from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple

import httpx2
import msgspec
import pytest

from perdure import Engine
from perdure.api.app import ApiApp
from perdure.api.doors.rates import Rates
from perdure.api.doors.tokens import TokenWish, new_token, parts_of
from perdure.api.endpoint import Endpoint
from perdure.api.problems import Refusal
from perdure.api.routes import endpoints
from perdure.core.runs.authority import PERMISSIONS, ROLES, Permission
from perdure.testing.probe import Probe
from tests.api import programs
from tests.api.conftest import served
from tests.client.engines import until_store

ROLE_NAMES = list(ROLES)
DAY = 86_400.0


class House(NamedTuple):
    """An API with tokens of each role for each of two tenants and for all, and one run of each tenant."""

    client: httpx2.AsyncClient
    tokens: dict[tuple[str, str | None], str]
    runs: Mapping[str, str]


@pytest.fixture
async def house(sqlite_url: str) -> AsyncIterator[House]:
    engine = Engine(sqlite_url)
    async with served(engine) as client:
        runs = {}
        for tenant in ("acme", "rival-tenant"):
            handle = await engine.start(
                programs.decide(programs.Item("hat", 1)), scope=f"{tenant}/eu", key=tenant
            )
            runs[tenant] = handle.run_id

            async def waits(handle: Any = handle) -> bool:
                return bool((await handle.waits()).signals)

            await until_store(waits)
        tokens = {}
        for role in ROLE_NAMES:
            for scope in (None, "acme"):
                tokens[role, scope] = await made(engine, role, scope)
        yield House(client, tokens, runs)


async def made(engine: Engine, role: str, scope: str | None = None, **more: Any) -> str:
    store = Probe(engine).store
    sources = Probe(engine).host.dispatcher.sources
    wish = TokenWish(label=f"{role} of {scope}", role=role, scope=scope, **more)
    token = new_token(wish, sources.now_ms(), sources.entropy)
    await store.access.add_token(token.row)
    return token.text


BODIES: dict[str, Any] = {
    "/v1/programs/{program}/runs": {"input": {"number": 1}},
    "/v1/runs/{run}/acts": {"type": "RESUME"},
    "/v1/runs/{run}/signals": {"name": "noted", "value": 1},
    "/v1/runs/{run}/fork": {"step": "root.0", "dry_run": True},
    "/v1/bulk-acts": {"type": "RESUME", "where": "status=paused", "dry_run": True},
    "/v1/sql": {"query": "SELECT 1"},
    "/v1/tokens": {"label": "made", "role": "viewer"},
    "/v1/schedules/{schedule}/backfill": {
        "first": "2026-01-01T00:00:00Z",
        "end": "2026-01-02T00:00:00Z",
    },
}


async def asked(house: House, endpoint: Endpoint, run: str, token: str | None) -> httpx2.Response:
    path = endpoint.path.format(
        **dict.fromkeys(
            ("step", "name", "act", "operation", "schedule", "token", "bulk"), "root.0"
        ),
        **{"run": run, "program": "api.big", "topic": "t", "key": "k"},
    )
    params = {"a": run, "b": run} if path == "/v1/diff" else {}
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    body = None if endpoint.body is None else BODIES.get(endpoint.path, {})
    return await house.client.request(
        endpoint.method, path, params=params, headers={**headers, "Prefer": "wait=0"}, json=body
    )


GUARDED = [each for each in endpoints() if each.permission is not None]


def name_of(endpoint: Endpoint) -> str:
    return f"{endpoint.method} {endpoint.path}"


@pytest.mark.parametrize("role", ROLE_NAMES)
async def test_every_route_lets_a_role_do_what_it_may_and_nothing_else(
    house: House, role: str
) -> None:
    for endpoint in GUARDED:
        assert endpoint.permission is not None
        may = endpoint.permission in PERMISSIONS[role]
        answer = await asked(house, endpoint, house.runs["acme"], house.tokens[role, None])
        assert (answer.status_code != 403) == may, f"{role}: {name_of(endpoint)}: {answer.text}"
        assert answer.status_code < 500, answer.text
        if not may:
            assert answer.json()["denial"] == "AUTHZ_DENIED"


async def test_no_route_shows_another_tenants_run_or_the_whole_store(house: House) -> None:
    token, other = house.tokens["admin", "acme"], house.runs["rival-tenant"]
    for endpoint in GUARDED:
        answer = await asked(house, endpoint, other, token)
        assert answer.status_code < 500
        if "{run}" in endpoint.path or endpoint.path == "/v1/diff":
            assert answer.status_code == 404, f"{name_of(endpoint)}: {answer.text}"
        elif endpoint.store_wide:
            assert answer.status_code == 403, f"{name_of(endpoint)}: {answer.text}"
        elif endpoint.method == "GET":
            assert other not in answer.text, name_of(endpoint)
            assert "rival-tenant" not in answer.text, name_of(endpoint)


async def test_a_tenant_sees_its_own_runs_and_those_of_scopes_below(house: House) -> None:
    headers = {"Authorization": f"Bearer {house.tokens['operator', 'acme']}"}
    own = await house.client.get(f"/v1/runs/{house.runs['acme']}", headers=headers)
    assert own.status_code == 200
    below = await house.client.get("/v1/runs", headers=headers, params={"scope": "acme/eu"})
    assert [run["key"] for run in below.json()["runs"]] == ["acme"]
    across = await house.client.get(
        "/v1/runs", headers=headers, params={"scope": "rival-tenant/eu"}
    )
    assert across.status_code == 403
    begun = {"input": {"number": 1}, "scope": "rival-tenant/eu"}
    path = "/v1/programs/api.big/runs"
    assert (await house.client.post(path, headers=headers, json=begun)).status_code == 403
    wanted = {"type": "PAUSE", "runs": [house.runs["rival-tenant"]], "id": "mine"}
    bulk = await house.client.post("/v1/bulk-acts", headers=headers, json=wanted)
    assert bulk.status_code == 202

    async def is_done() -> bool:
        shown = (await house.client.get("/v1/bulk-acts/mine", headers=headers)).json()
        return bool(shown["state"] == "done")

    await until_store(is_done)
    shown = (await house.client.get("/v1/bulk-acts/mine", headers=headers)).json()
    assert [failure["code"] for failure in shown["failures"]] == ["unknown-run"]


async def test_no_route_lets_a_wrong_token_in(house: House, sqlite_url: str) -> None:
    good = house.tokens["admin", None]
    async with Engine(sqlite_url, hosts=False) as engine:
        late = await made(engine, "admin", expires_in=0.001)
        revoked = await made(engine, "admin")
        parts = parts_of(revoked)
        assert parts is not None
        assert await Probe(engine).store.access.revoke_token(parts[0], 1)
    wrong = {
        "none": None,
        "expired": late,
        "revoked": revoked,
        "another secret": good[:-1] + ("0" if good[-1] != "0" else "1"),
        "cut": good[:-1],
        "no token": "nonsense",
        "empty": " ",
        "long": "perdure_" + "a" * 5000,
    }
    for endpoint in GUARDED:
        for what, token in wrong.items():
            answer = await asked(house, endpoint, house.runs["acme"], token)
            assert answer.status_code == 401, f"{name_of(endpoint)} with {what}: {answer.text}"
            assert answer.headers["www-authenticate"] == "Bearer"


async def test_emergency_stops_are_for_admins_with_a_reason(house: House) -> None:
    path = f"/v1/runs/{house.runs['acme']}/acts"
    stop = {"type": "EMERGENCY_STOP"}
    for role in ROLE_NAMES:
        headers = {"Authorization": f"Bearer {house.tokens[role, None]}"}
        refused = await house.client.post(path, json=stop, headers=headers)
        assert refused.status_code == 403
        expected = "AUTHZ_REASON_REQUIRED" if role == "admin" else "AUTHZ_DENIED"
        assert refused.json()["denial"] == expected
    headers = {"Authorization": f"Bearer {house.tokens['admin', None]}"}
    done = await house.client.post(path, json={**stop, "reason": "fire"}, headers=headers)
    assert done.json()["decision"]["accepted"] is True
    log = (await house.client.get("/v1/audit-log", headers=headers)).json()["records"]
    assert [(each["action"], each["role"], each["outcome"]) for each in log] == [
        ("EMERGENCY_STOP", "admin", "accepted"),
        ("EMERGENCY_STOP", "admin", "AUTHZ_REASON_REQUIRED"),
        ("EMERGENCY_STOP", "engineer", "AUTHZ_DENIED"),
        ("EMERGENCY_STOP", "operator", "AUTHZ_DENIED"),
    ]
    assert (log[0]["reason"], log[0]["scope"]) == ("fire", "acme/eu")
    assert log[0]["target"] == house.runs["acme"]


async def test_the_engines_own_authorizer_decides_if_it_has_one(sqlite_url: str) -> None:
    class Closed:
        def permits(self, permission: Permission, actor: Any) -> str | None:
            del actor
            return None if permission is Permission.READ else "CLOSED_TODAY"

        async def decide(self, act: Any, actor: Any, run: Any, reason: str) -> str | None:
            del act, actor, run, reason
            return "CLOSED_TODAY"

    async with served(Engine(sqlite_url, authorizer=Closed())) as client:
        assert (await client.get("/v1/runs")).status_code == 200
        refused = await client.post("/v1/sql", json={"query": "SELECT 1"})
        assert (refused.status_code, refused.json()["denial"]) == (403, "CLOSED_TODAY")


async def test_without_tokens_only_this_machine_is_let_in(sqlite_url: str) -> None:
    api = ApiApp(Engine(sqlite_url))
    await api.open()
    try:
        for address, headers, status in (
            ("127.0.0.1", {}, 200),
            ("::1", {}, 200),
            ("10.0.0.9", {}, 401),
            ("127.0.0.1", {"X-Forwarded-For": "127.0.0.1"}, 401),
            ("127.0.0.1", {"Forwarded": "for=127.0.0.1"}, 401),
            ("127.0.0.1", {"Host": "attacker.example"}, 401),
            ("127.0.0.1", {"Host": "localhost.attacker.example:8377"}, 401),
            ("127.0.0.1", {"Host": "[::1]:8377"}, 200),
        ):
            transport = httpx2.ASGITransport(api, client=(address, 5000))
            async with httpx2.AsyncClient(
                transport=transport, base_url="http://localhost"
            ) as client:
                answer = await client.get("/v1/runs", headers=headers)
                assert answer.status_code == status, f"{address} {headers}: {answer.text}"
                assert (await client.get("/health", headers=headers)).status_code == 200
    finally:
        await api.close()


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "https://attacker.example"},
        {"Origin": "null"},
    ],
)
async def test_a_page_of_another_site_changes_nothing(
    sqlite_url: str, headers: dict[str, str]
) -> None:
    async with served(Engine(sqlite_url)) as client:
        path, body = "/v1/programs/api.big/runs", {"input": {"number": 1}}
        assert (await client.post(path, json=body, headers=headers)).status_code == 403
        own = {"Sec-Fetch-Site": "same-origin", "Origin": "http://localhost"}
        assert (await client.post(path, json=body, headers=own)).status_code == 201
        form = await client.post(path, content=b"a=b", headers={"Content-Type": "text/plain"})
        assert form.status_code == 415


async def test_a_browser_keeps_its_token_in_a_cookie_that_scripts_cannot_read(
    sqlite_url: str,
) -> None:
    engine = Engine(sqlite_url)
    async with served(engine) as client:
        token = await made(engine, "viewer")
        wrong = await client.post("/v1/session", json={"token": "perdure_x"})
        assert wrong.status_code == 401
        begun = await client.post("/v1/session", json={"token": token})
        cookie = begun.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        me = (await client.get("/v1/me")).json()
        assert (me["role"], me["acts"]) == ("viewer", [])
        assert (await client.delete("/v1/session")).status_code == 204
        assert (await client.get("/v1/me")).status_code == 401


async def test_tokens_are_made_listed_and_revoked_and_the_log_says_so(store_url: str) -> None:
    engine = Engine(store_url)
    async with served(engine) as client:
        first = await made(engine, "admin")
        client.headers["Authorization"] = f"Bearer {first}"
        wish = {"label": "ci", "role": "operator", "scope": "acme", "expires_in": DAY}
        token = (await client.post("/v1/tokens", json=wish)).json()
        ci = {"Authorization": f"Bearer {token['token']}"}
        assert (await client.get("/v1/me", headers=ci)).json()["scope"] == "acme"
        listed = (await client.get("/v1/tokens")).json()["tokens"]
        assert {each["label"] for each in listed} == {"ci", "admin of None"}
        assert token["token"].rpartition("_")[2] not in str(listed)
        stored = await engine.sql("SELECT 1")
        assert stored.rows
        assert (await client.delete(f"/v1/tokens/{token['id']}")).status_code == 204
        assert (await client.get("/v1/me", headers=ci)).status_code == 401
        assert (await client.delete(f"/v1/tokens/{token['id']}")).status_code == 404
        bad = await client.post("/v1/tokens", json={"label": "x", "role": "emperor"})
        assert bad.status_code == 422
        log = (await client.get("/v1/audit-log", params={"limit": 2})).json()
        assert [each["outcome"] for each in log["records"]] == ["input", "not-found"]
        rest = (await client.get("/v1/audit-log", params={"after": log["cursor"]})).json()
        assert [each["action"] for each in rest["records"]] == ["token.revoke", "token.create"]
        actors = await client.get("/v1/audit-log", params={"actor": "unknown"})
        assert actors.json()["records"] == []


async def test_the_store_has_no_secret_of_a_token(sqlite_url: str) -> None:
    async with Engine(sqlite_url, hosts=False) as engine:
        token = await made(engine, "viewer")
        (row,) = await Probe(engine).store.access.tokens()
        secret = token.rpartition("_")[2]
        assert secret not in str(row)
        assert bytes.fromhex(secret) not in row.hash
        assert len(row.hash) == 32


def test_a_caller_who_asks_too_often_gets_the_time_to_ask_again() -> None:
    rates = Rates(per_second=10, burst=3)
    for _ in range(3):
        rates.spend("a", 1000)
    with pytest.raises(Refusal) as refused:
        rates.spend("a", 1000)
    assert refused.value.status == 429
    assert refused.value.headers["Retry-After"] == "1"
    rates.spend("b", 1000)
    rates.spend("a", 1100)


DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"{", 400),
        (b"", 422),
        (b"null", 422),
        (b'"text"', 422),
        (b"\xff\xfe{}", 400),
        (b'{"query": "\xff"}', 400),
        (b'{"query": "", "deep": ' + DEEP + b"}", 400),
        (b'{"query": "' + b"x" * (5 * 1024 * 1024) + b'"}', 413),
        (b'{"query": 1e999}', 422),
    ],
)
async def test_a_hostile_body_is_refused(sqlite_url: str, content: bytes, status: int) -> None:
    async with served(Engine(sqlite_url)) as client:
        headers = {"Content-Type": "application/json"}
        answer = await client.post("/v1/sql", content=content, headers=headers)
        assert answer.status_code == status, answer.text
        assert msgspec.json.decode(answer.content)["status"] == status


async def test_hostile_paths_and_headers_are_refused(sqlite_url: str) -> None:
    async with served(Engine(sqlite_url)) as client:
        for path in (
            "/v1/runs/../../etc/passwd",
            "/v1/runs/%2e%2e%2f%2e%2e%2fetc%2fpasswd",
            "/v1/runs/%00",
            "/v1/runs/%ff",
            "//v1/runs",
            "/v1/runs/" + "r" * 8000,
            "/v1/schedules/%00",
            "/v1/programs/%ed%a0%80",
            "/v1/operations/..%2f..%2fx",
        ):
            answer = await client.get(path)
            assert 400 <= answer.status_code < 500, f"{path}: {answer.status_code} {answer.text}"
        long = await client.get("/v1/runs?where=" + "x" * 20_000)
        assert long.status_code == 414
        many = await client.get("/v1/runs", headers={f"x-{n}": "y" for n in range(200)})
        assert many.status_code == 431


async def test_answers_forbid_scripts_frames_and_guesses(sqlite_url: str) -> None:
    async with served(Engine(sqlite_url)) as client:
        for path in ("/v1/runs", "/v1/nowhere", "/health"):
            headers = (await client.get(path)).headers
            assert headers["content-security-policy"].startswith("default-src 'none'")
            assert headers["x-content-type-options"] == "nosniff"
            assert "access-control-allow-origin" not in headers
