import asyncio
from typing import Any

import httpx2
import msgspec
import pytest

from perdure import Engine
from perdure.api.routes import endpoints
from perdure.api.runs import channel
from perdure.api.runs.pages import booked_events
from perdure.core.ids import RunId
from tests.api import programs
from tests.api.conftest import served
from tests.cli import orders
from tests.client.engines import until_store


async def ids_of(url: str) -> dict[str, RunId]:
    return await orders.run_ids(url)


async def test_every_reading_route_of_a_run_answers_what_it_declares(
    reader: httpx2.AsyncClient, filled_url: str
) -> None:
    ids = await ids_of(filled_url)
    for endpoint in endpoints():
        if endpoint.method != "GET" or "{run}" not in endpoint.path or "{act}" in endpoint.path:
            continue
        for run_id in ids.values():
            path = endpoint.path.format(run=run_id, step="root.0", name="none")
            answer = await reader.get(path)
            assert answer.status_code in (200, 202), answer.text
            if endpoint.reply is not Any:
                msgspec.json.decode(answer.content, type=endpoint.reply)


async def test_every_reading_route_of_the_store_answers_what_it_declares(
    reader: httpx2.AsyncClient,
) -> None:
    for endpoint in endpoints():
        if endpoint.method == "GET" and "{" not in endpoint.path and "diff" not in endpoint.path:
            answer = await reader.get(endpoint.path)
            assert answer.status_code == 200, answer.text
            if endpoint.media_type == "application/json" and endpoint.reply is not None:
                msgspec.json.decode(answer.content, type=endpoint.reply)


async def test_a_list_is_paged_and_filtered_by_the_store(
    reader: httpx2.AsyncClient,
) -> None:
    first = (await reader.get("/v1/runs", params={"limit": 2})).json()
    assert len(first["runs"]) == 2
    after = {"limit": 2, "after": first["cursor"]}
    second = (await reader.get("/v1/runs", params=after)).json()
    assert len(second["runs"]) == 1
    assert second["cursor"] is None
    for params, keys in (
        ({"status": "failed,completed"}, {"completed", "failed"}),
        ({"where": "status=blocked program=orders.checkout"}, {"waiting"}),
        ({"waiting_for": "approval"}, {"waiting"}),
        ({"text": "wait"}, {"waiting"}),
        ({"key_prefix": "fail", "program": "orders.refuse"}, {"failed"}),
        ({"created_to": "2020-01-01"}, set()),
    ):
        found = (await reader.get("/v1/runs", params=params)).json()["runs"]
        assert {run["key"] for run in found} == keys
    shown = (await reader.get("/v1/runs", params={"fields": "status"})).json()["runs"]
    assert {frozenset(run) for run in shown} == {frozenset({"run_id", "status"})}


async def test_counts_and_error_groups(reader: httpx2.AsyncClient) -> None:
    counts = (await reader.get("/v1/runs/counts")).json()["counts"]
    shown = {status: each["runs"] for status, each in counts.items() if each["runs"]}
    assert shown == {"blocked": 1, "completed": 1, "failed": 1}
    (group,) = (await reader.get("/v1/errors")).json()["groups"]
    assert (group["runs"], group["code"], group["message"]) == (
        1,
        "ValueError",
        "no receipt for B",
    )
    assert group["program"] == "orders.refuse"
    listed = (await reader.get("/v1/runs", params={"error": group["error"]})).json()["runs"]
    assert [run["run_id"] for run in listed] == [group["run_id"]]
    elsewhere = await reader.get("/v1/errors", params={"program": "orders.checkout"})
    assert elsewhere.json()["groups"] == []


async def test_a_mistyped_filter_is_refused_and_the_known_ones_are_named(
    reader: httpx2.AsyncClient,
) -> None:
    answer = await reader.get("/v1/runs", params={"statu": "failed"})
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["code"] == "input"
    assert "status" in problem["remedy"]
    assert problem["command"] == "perdure runs list"


async def test_a_run_that_does_not_exist_is_a_problem_with_a_code(
    reader: httpx2.AsyncClient,
) -> None:
    for name in ("r_00000000000000000000000000000000", "nonsense", "..%2f..%2fetc"):
        answer = await reader.get(f"/v1/runs/{name}")
        assert answer.status_code == 404
        assert answer.json()["status"] == 404
    assert (await reader.get("/v1/nowhere")).json()["code"] == "not-found"


async def test_an_etag_saves_the_answer(reader: httpx2.AsyncClient, filled_url: str) -> None:
    run_id = (await ids_of(filled_url))["waiting"]
    answer = await reader.get(f"/v1/runs/{run_id}")
    same = await reader.get(f"/v1/runs/{run_id}", headers={"If-None-Match": answer.headers["etag"]})
    assert (same.status_code, same.content) == (304, b"")
    other = await reader.get(f"/v1/runs/{run_id}", headers={"If-None-Match": '"0.0"'})
    assert other.status_code == 200


async def test_answers_are_compressed_for_those_who_accept_it(
    reader: httpx2.AsyncClient, filled_url: str
) -> None:
    run_id = (await ids_of(filled_url))["waiting"]
    path = f"/v1/runs/{run_id}/history"
    plain = await reader.get(path, headers={"Accept-Encoding": "identity"})
    packed = await reader.get(path, headers={"Accept-Encoding": "gzip"})
    refused = await reader.get(path, headers={"Accept-Encoding": "gzip;q=0"})
    assert "content-encoding" not in plain.headers
    assert "content-encoding" not in refused.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.json() == plain.json()
    assert int(packed.headers["content-length"]) < len(plain.content) / 2


async def test_the_inbox_shows_signals_with_their_schema_and_parked_steps(store_url: str) -> None:
    await orders.fill(store_url)
    async with served(Engine(store_url)) as client:
        started = await client.post("/v1/programs/api.parks/runs", json={"input": {"number": 7}})
        run_id = started.json()["run_id"]

        async def is_parked() -> bool:
            page = (await client.get(f"/v1/runs/{run_id}/steps", params={"parked": True})).json()
            return bool(page["steps"])

        await until_store(is_parked)
        items = (await client.get("/v1/inbox")).json()["items"]
        by_kind = {item["kind"]: item for item in items}
        assert by_kind["signal"]["schema"] == {"type": "boolean"}
        assert by_kind["signal"]["answer"]["body"] == {"name": "approval"}
        assert by_kind["operator"]["name"] == "api.stubborn"
        assert by_kind["operator"]["schema"] == {"type": "integer"}
        groups = (await client.get("/v1/errors")).json()["groups"]
        assert [group["message"] for group in groups if group["parked_steps"]] == ["not 7"]
        page = (await client.get("/v1/inbox", params={"limit": 1})).json()
        assert len(page["items"]) == 1
        rest = await client.get("/v1/inbox", params={"after": page["cursor"]})
        assert [item["kind"] for item in rest.json()["items"]] == ["signal"]


async def test_steps_times_and_one_step_with_its_values(api: httpx2.AsyncClient) -> None:
    started = await api.post(
        "/v1/programs/api.many/runs", json={"input": {"count": 300}}, headers={"Prefer": "wait=60"}
    )
    assert started.json()["result"] == sum(range(300))
    run = f"/v1/runs/{started.json()['run_id']}"
    first = (await api.get(f"{run}/steps", params={"limit": 100, "name": "api.price"})).json()
    assert (first["total"], len(first["steps"])) == (300, 100)
    assert first["counts"] == {"SUCCESS": 300}
    last = await api.get(f"{run}/steps", params={"after": 299, "order": "begun"})
    assert len(last.json()["steps"]) == 1
    step = first["steps"][7]["step"]
    shown = (await api.get(f"{run}/steps/{step}")).json()
    assert shown["input"] == {"item": {"name": "7", "price": 7}}
    assert shown["output"] == 7
    assert [each["outcome"] for each in shown["attempts"]] == ["ok"]
    assert shown["balance_text"]
    assert (await api.get(f"{run}/steps/{step}/output")).json() == 7
    cut = (await api.get(f"{run}/steps/{step}", params={"payload_limit": 1})).json()
    assert cut["is_cut"]
    assert "input" not in cut
    timeline = (await api.get(f"{run}/timeline", params={"rows": 10})).json()
    (row,) = timeline["rows"]
    assert (row["steps"], row["name"], row["step"]) == (300, "api.price", None)
    exact = (await api.get(f"{run}/timeline", params={"rows": 1000})).json()
    assert len(exact["rows"]) == 300
    assert {each["kind"] for each in exact["rows"][0]["segments"]} <= {"queued", "executing"}


async def test_history_pages_meet_and_have_the_postings(
    api: httpx2.AsyncClient,
) -> None:
    started = await api.post(
        "/v1/programs/api.chain/runs", json={"input": {"left": 3}}, headers={"Prefer": "wait=60"}
    )
    run = f"/v1/runs/{started.json()['run_id']}"
    whole = (await api.get(f"{run}/history", params={"limit": 1000})).json()
    offsets = [event["offset"] for event in whole["events"]]
    assert offsets == list(range(whole["entries"]))
    pieces: list[Any] = []
    first: int | None = 0
    while first is not None:
        page = (await api.get(f"{run}/history", params={"first": first, "limit": 3})).json()
        pieces += page["events"]
        first = page["next"]
    assert pieces == whole["events"]
    tail = (await api.get(f"{run}/history", params={"first": -2})).json()
    assert tail["events"] == whole["events"][-2:]
    totals: dict[tuple[str, str], int] = {}
    for event in whole["events"]:
        for posting in event["postings"]:
            account = event["run_id"], posting["account"]
            totals[account] = totals.get(account, 0) + posting["value"]
    (spans,) = (await api.get(f"{run}/trace")).json()["resourceSpans"][0]["scopeSpans"]
    assert {len(span["spanId"]) for span in spans["spans"]} == {16}
    assert (await api.get(f"{run}/params")).json() == {"values": {}}
    ledger = (await api.get(f"{run}/ledger")).json()
    assert totals == {(a["run_id"], a["account"]): a["balance"] for a in ledger["accounts"]}
    assert ledger["trial_balance"] == {"semaphore": 0, "open": [], "balances": True}
    assert len((await api.get(f"{run}/chain")).json()["runs"]) == 4


async def test_the_trial_balance_names_what_is_open(
    reader: httpx2.AsyncClient, filled_url: str
) -> None:
    run_id = (await ids_of(filled_url))["waiting"]
    ledger = (await reader.get(f"/v1/runs/{run_id}/ledger")).json()
    balance = ledger["trial_balance"]
    assert balance["balances"]
    assert sum(each["count"] for each in balance["open"]) == balance["semaphore"] == 1
    fields = ledger["accounts"][0]["fields"]
    assert "".join(field["digits"] for field in fields) == ledger["accounts"][0]["digits"]
    audit = (await reader.get(f"/v1/runs/{run_id}/audit")).json()
    assert audit["is_clean"]
    assert audit["head"] == ledger["head"]


async def test_source_shows_the_line_that_is_awaited(
    reader: httpx2.AsyncClient, filled_url: str
) -> None:
    run_id = (await ids_of(filled_url))["waiting"]
    source = (await reader.get(f"/v1/runs/{run_id}/source")).json()
    assert source["is_same"]
    lines = source["text"].splitlines()
    (awaited,) = source["awaited"]
    assert "approval.receive()" in lines[awaited["line"] - source["first_line"]]
    assert source["problem"] is None


async def test_a_graph_shows_its_nodes_with_the_state_of_their_steps(
    api: httpx2.AsyncClient,
) -> None:
    started = await api.post("/v1/programs/api.order/runs", json={"input": {"number": 5}})
    run = f"/v1/runs/{started.json()['run_id']}"

    async def waits() -> bool:
        found = (await api.get(f"{run}/waits")).json()["waits"]
        return [each["kind"] for each in found] == ["signal"]

    await until_store(waits)
    source = (await api.get(f"{run}/source")).json()
    nodes = {node["name"]: node for node in source["nodes"]}
    assert source["kind"] == "graph"
    assert (nodes["charge"]["steps"], nodes["approval"]["open"]) == (1, 1)
    assert {(edge["from"], edge["to"]) for edge in source["edges"]} >= {("charge", "approval")}
    assert source["svg"].startswith("<svg")
    balance = (await api.get(f"{run}/ledger")).json()["trial_balance"]
    assert balance["balances"]
    (item,) = (await api.get("/v1/inbox")).json()["items"]
    assert (item["name"], item["hook_key"]) == ("approval", "5")
    sent = await api.post(item["answer"]["path"], json={"value": True})
    assert sent.status_code == 202
    result = await api.get(f"{run}/result", headers={"Prefer": "wait=60"})
    assert result.json()["result"] == "receipt 5"


async def test_integers_beyond_two_to_the_53_are_strings(api: httpx2.AsyncClient) -> None:
    number = 2**53 + 1
    started = await api.post(
        "/v1/programs/api.big/runs",
        json={"input": {"number": number}},
        headers={"Prefer": "wait=60"},
    )
    assert started.json()["result"] == {"number": str(number), "small": 1}


async def test_many_followers_of_one_run_cost_the_reads_of_one(
    api: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int] = []

    def counted(exchange: Any, chain: Any, first: int, limit: int) -> Any:
        reads.append(first)
        return booked_events(exchange, chain, first, limit)

    monkeypatch.setattr(channel, "booked_events", counted)
    item = {"input": {"item": {"name": "hat", "price": 1}}}
    run = (await api.post("/v1/programs/api.decide/runs", json=item)).headers["location"]

    async def waits() -> bool:
        found = (await api.get(f"{run}/waits")).json()["waits"]
        return [each["kind"] for each in found] == ["signal"]

    await until_store(waits)
    accept = {"Accept": "text/event-stream"}
    following = [asyncio.create_task(api.get(f"{run}/history", headers=accept)) for _ in range(100)]
    await until_store(lambda: _has_read(reads))
    await api.post(f"{run}/signals", json={"name": programs.decision.name, "value": True})
    texts = {(await each).text for each in following}
    assert len(texts) == 1
    assert len(reads) < 20


async def _has_read(reads: list[int]) -> bool:
    return bool(reads)


async def test_streams_and_published_values(api: httpx2.AsyncClient) -> None:
    words = ["to", "be", "or", "not"]
    started = await api.post(
        "/v1/programs/api.talk/runs",
        json={"input": {"words": words}},
        headers={"Prefer": "wait=60"},
    )
    run = f"/v1/runs/{started.json()['run_id']}"
    assert (await api.get(f"{run}/published")).json()["values"] == {"said": ["to"]}
    assert (await api.get(f"{run}/streams")).json()["streams"] == [{"name": "words", "chunks": 4}]
    page = (await api.get(f"{run}/streams/words", params={"start": 1, "limit": 2})).json()
    assert [chunk["value"] for chunk in page["chunks"]] == ["be", "or"]
    assert page["next"] == 3
    accept = {"Accept": "text/event-stream"}
    followed = (await api.get(f"{run}/streams/words", headers=accept)).text
    assert followed.count("event: chunk") == 4
    assert followed.rstrip().endswith('{"status":"completed"}')


async def test_programs_show_what_they_take_and_give(reader: httpx2.AsyncClient) -> None:
    shown = (await reader.get("/v1/programs/api.decide")).json()
    assert shown["result_schema"] == {"type": "integer"}
    assert [signal["name"] for signal in shown["signals"]] == ["decision"]
    assert "price" in str(shown["input_schema"])
    names = [program["name"] for program in (await reader.get("/v1/programs")).json()["programs"]]
    assert {"api.order", "orders.checkout"} <= set(names)
    missing = await reader.get("/v1/programs/api.nothing")
    assert missing.json()["code"] == "unknown-name"


async def test_metrics_are_few_and_have_no_ids(reader: httpx2.AsyncClient) -> None:
    await reader.get("/v1/nowhere")
    answer = await reader.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = answer.text.splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert values["perdure_open_runs"] == "1"
    assert values["perdure_hosts"] == "0"
    documented = {line.split()[2] for line in lines if line.startswith("# HELP ")}
    assert {name.partition("{")[0] for name in values} <= documented
    assert "r_" not in answer.text.replace("perdure_", "").replace("per_", "")
    again = await reader.get("/metrics")
    assert 'perdure_http_requests_total{status="2xx"} 1' in again.text


async def test_health_needs_no_store_and_ready_does(sqlite_url: str) -> None:
    async with served(Engine(sqlite_url)) as client:
        assert (await client.get("/health")).json() == {"status": "ok"}
        assert (await client.get("/ready")).json() == {"status": "ok"}


def test_no_two_routes_are_the_same() -> None:
    names = [(endpoint.method, endpoint.path) for endpoint in endpoints()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("endpoint", endpoints(), ids=lambda each: f"{each.method} {each.path}")
def test_every_route_says_what_it_does(endpoint: Any) -> None:
    assert endpoint.summary.endswith(".")
    assert (
        endpoint.method == "GET"
        or endpoint.action
        or endpoint.permission is None
        or any(
            word in endpoint.path for word in ("runs", "signals", "topics", "respond", "preflight")
        )
    )
