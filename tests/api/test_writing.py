import asyncio
from typing import Any

import httpx2
import pytest

from perdure import Engine
from tests.api import programs
from tests.api.conftest import served
from tests.client.engines import until_store

ITEM = {"item": {"name": "hat", "price": 42}}
START = "/v1/programs/api.decide/runs"


async def begun(api: httpx2.AsyncClient, **body: Any) -> str:
    """The path of a run of `api.decide` that waits for its signal."""
    answer = await api.post(START, json={"input": ITEM, **body})
    assert answer.status_code == 201, answer.text
    run = str(answer.headers["location"])
    await until_waiting(api, run)
    return run


async def until_waiting(api: httpx2.AsyncClient, run: str) -> None:
    """Wait until the run waits for its signal."""

    async def waits() -> bool:
        found = (await api.get(f"{run}/waits")).json()["waits"]
        return [each["kind"] for each in found] == ["signal"]

    await until_store(waits)


async def test_one_key_is_one_run_and_another_body_is_refused(api: httpx2.AsyncClient) -> None:
    key = {"Idempotency-Key": "hat-1"}
    first = await api.post(START, json={"input": ITEM}, headers=key)
    again = await api.post(START, json={"input": ITEM}, headers=key)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["run_id"] == again.json()["run_id"]
    assert (first.json()["is_new"], again.json()["is_new"]) == (True, False)
    other = {"item": {"name": "hat", "price": 43}}
    refused = await api.post(START, json={"input": other}, headers=key)
    assert (refused.status_code, refused.json()["code"]) == (409, "key-reused")
    assert len((await api.get("/v1/runs")).json()["runs"]) == 1


async def test_a_start_waits_for_the_result_as_long_as_it_is_asked_to(
    api: httpx2.AsyncClient,
) -> None:
    answer = await api.post(START, json={"input": ITEM}, headers={"Prefer": "wait=1"})
    assert (answer.status_code, "result" in answer.json()) == (202, False)
    run = answer.headers["location"]
    assert (await api.post(f"{run}/signals", json={"name": "decision", "value": True})).is_success
    result = await api.get(f"{run}/result", headers={"Prefer": "wait=60"})
    assert (result.status_code, result.json()["result"]) == (200, 42)
    bad = await api.get(f"{run}/result", headers={"Prefer": "wait=soon"})
    assert bad.status_code == 400


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"input": {}}, 422),
        ({"input": {"item": {"name": "hat"}}}, 422),
        ({"input": {"item": {"name": "hat", "price": "dear"}}}, 422),
        ({"input": ITEM, "if_ended": "perhaps"}, 422),
        ({"input": ITEM, "unknown": 1}, 422),
        ({"input": ITEM, "tags": {"a": {"b": 1}}}, 422),
        ([], 422),
    ],
)
async def test_a_start_with_a_wrong_body_starts_nothing(
    sqlite_url: str, body: Any, status: int
) -> None:
    async with served(Engine(sqlite_url)) as api:
        answer = await api.post(START, json=body)
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        assert (await api.get("/v1/runs")).json()["runs"] == []


async def test_a_start_over_a_limit_is_refused_for_a_time(api: httpx2.AsyncClient) -> None:
    start = "/v1/programs/api.alone/runs"
    assert (await api.post(start, json={"input": {"number": 1}})).status_code == 201
    refused = await api.post(start, json={"input": {"number": 2}})
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "7")
    assert (refused.json()["code"], refused.json()["retry_after"]) == ("limit-reached", 7)


async def test_a_start_may_wait_for_approval_or_a_time(api: httpx2.AsyncClient) -> None:
    start = "/v1/programs/api.paced/runs"
    body = {"input": {"number": 3}}
    waits = (await api.post(start, json={**body, "approval": True, "priority": 2})).json()
    assert (waits["status"], waits["is_new"]) == ("pending", True)
    late = (await api.post(start, json={**body, "delay": 3600})).json()
    assert late["status"] == "pending"
    shown = (await api.get("/v1/runs", params={"status": "pending"})).json()["runs"]
    assert {run["run_id"] for run in shown} == {waits["run_id"], late["run_id"]}
    refused = await api.post(start, json={**body, "debounce": 5})
    assert refused.status_code == 422
    assert "pass the key" in refused.json()["remedy"]
    acts = f"/v1/runs/{waits['run_id']}/acts"
    assert (await api.post(acts, json={"type": "APPROVE"})).status_code in {200, 202}
    done = await api.get(f"/v1/runs/{waits['run_id']}/result", headers={"Prefer": "wait=60"})
    assert done.json()["status"] == "completed"


async def test_a_start_refuses_parameters_that_the_program_does_not_declare(
    api: httpx2.AsyncClient,
) -> None:
    start = "/v1/programs/api.paced/runs"
    body = {"input": {"number": 3}, "params": {"batch": 5}}
    ended = await api.post(start, json=body, headers={"Prefer": "wait=60"})
    assert ended.json()["result"] == 15
    refused = await api.post(start, json={**body, "params": {"batsh": 5}})
    assert (refused.status_code, refused.json()["remedy"]) == (422, "did you mean 'batch'?")


async def test_a_pending_run_shows_its_code(api: httpx2.AsyncClient) -> None:
    body = {"input": {"number": 1}}
    first, second = [await api.post("/v1/programs/api.queued/runs", json=body) for _ in range(2)]
    assert [each.status_code for each in (first, second)] == [201, 201]
    assert second.json()["status"] == "pending"
    shown = (await api.get(f"{second.headers['location']}/source")).json()
    assert "async def queued" in shown["text"]
    assert (shown["steps"], shown["problem"]) == ([], None)


async def test_tags_and_scope_find_the_run(api: httpx2.AsyncClient) -> None:
    run = await begun(api, tags={"customer": "acme"}, scope="eu")
    for params in ({"tag.customer": "acme"}, {"scope": "eu"}, {"text": "customer=acme"}):
        (found,) = (await api.get("/v1/runs", params=params)).json()["runs"]
        assert run.endswith(found["run_id"])
    assert (await api.get("/v1/runs", params={"tag.customer": "other"})).json()["runs"] == []


async def test_a_signal_of_the_wrong_type_is_refused(api: httpx2.AsyncClient) -> None:
    run = await begun(api)
    answer = await api.post(f"{run}/signals", json={"name": "decision", "value": "yes"})
    assert answer.status_code == 422
    assert "decision" in answer.json()["detail"]
    sent = await api.post(f"{run}/signals", json={"name": "decision", "value": False, "id": "1"})
    assert sent.status_code == 202
    result = await api.get(f"{run}/result", headers={"Prefer": "wait=60"})
    assert result.json()["result"] == 0
    late = await api.post(f"{run}/signals", json={"name": "decision", "value": True})
    assert (late.status_code, late.json()["code"]) == (409, "run-closed")


async def test_acts_are_decided_by_the_owner_and_journaled(api: httpx2.AsyncClient) -> None:
    run = await begun(api)
    paused = await api.post(f"{run}/acts", json={"type": "PAUSE", "reason": "lunch", "id": "a1"})
    assert paused.json()["decision"]["accepted"] is True
    again = await api.post(f"{run}/acts", json={"type": "PAUSE"})
    assert again.json()["decision"]["code"] == "RUN_PAUSED"
    shown = await api.get(f"{run}/acts/a1")
    assert shown.json()["decision"]["seq"] == paused.json()["decision"]["seq"]
    unknown = await api.get(f"{run}/acts/never")
    assert unknown.status_code == 202
    decisions = (await api.get(f"{run}/decisions")).json()["decisions"]
    assert [(each["type"], each["is_accepted"], each["actor"]) for each in decisions] == [
        ("PAUSE", True, "local"),
        ("PAUSE", False, "local"),
    ]
    explained = (await api.get(f"{run}/explain")).json()
    assert explained["action"]["body"] == {"type": "RESUME"}
    moved = await api.post(explained["action"]["path"], json=explained["action"]["body"])
    assert moved.json()["decision"]["accepted"] is True


async def test_an_act_on_an_older_state_is_refused(api: httpx2.AsyncClient) -> None:
    run = await begun(api)
    etag = (await api.get(run)).headers["etag"]
    first = await api.post(f"{run}/acts", json={"type": "PAUSE"}, headers={"If-Match": etag})
    assert first.status_code == 200
    late = await api.post(f"{run}/acts", json={"type": "CANCEL"}, headers={"If-Match": etag})
    assert (late.status_code, late.json()["code"]) == (412, "precondition-failed")
    assert (await api.get(run)).json()["status"] == "paused"


async def test_parked_steps_are_retried_and_skipped(api: httpx2.AsyncClient) -> None:
    started = await api.post("/v1/programs/api.parks/runs", json={"input": {"number": 1}})
    run = started.headers["location"]

    async def parked(attempt: int) -> bool:
        page = (await api.get(f"{run}/steps", params={"parked": True})).json()
        return [step["logical_attempt"] for step in page["steps"]] == [attempt]

    await until_store(lambda: parked(1))
    retried = await api.post(f"{run}/steps/root.0/retry", json={"reason": "again"})
    assert retried.json()["decision"]["accepted"] is True
    await until_store(lambda: parked(2))
    misfit = await api.post(f"{run}/steps/root.0/skip", json={"value": "text"})
    assert misfit.json()["decision"]["code"] == "VALUE_MISFIT"
    skipped = await api.post(f"{run}/steps/root.0/skip", json={"value": 9, "reason": "known"})
    assert skipped.json()["decision"]["accepted"] is True
    result = await api.get(f"{run}/result", headers={"Prefer": "wait=60"})
    assert result.json()["result"] == 9


async def test_a_fork_is_what_its_preview_says(api: httpx2.AsyncClient) -> None:
    run = await begun(api)
    wanted = {"step": "api.price", "id": "f1"}
    preview = (await api.post(f"{run}/fork", json={**wanted, "dry_run": True})).json()
    assert [step["name"] for step in preview["repeated"]] == ["api.price"]
    made = await api.post(f"{run}/fork", json=wanted)
    assert (made.status_code, made.json()["run_id"]) == (201, preview["fork"])
    fork = made.headers["location"]
    await until_waiting(api, fork)
    params = {"a": run.rpartition("/")[2], "b": preview["fork"], "changes": False}
    diff = (await api.get("/v1/diff", params=params)).json()
    assert diff["counts"]["same"] >= 1


async def test_a_bulk_act_reaches_all_that_match_and_no_others(api: httpx2.AsyncClient) -> None:
    runs = [await begun(api, tags={"batch": "1"}) for _ in range(3)]
    other = await begun(api)
    wanted = {"type": "CANCEL", "filters": {"tags": {"batch": "1"}, "status": ["blocked"]}}
    preview = (await api.post("/v1/bulk-acts", json={**wanted, "dry_run": True})).json()
    assert preview["count"] == {"runs": 3, "is_complete": True}
    begun_act = await api.post("/v1/bulk-acts", json={**wanted, "reason": "stop", "id": "b1"})
    assert begun_act.status_code == 202
    accept = {"Accept": "text/event-stream"}
    text = (await api.get(begun_act.headers["location"], headers=accept)).text
    assert "event: end" in text
    done = (await api.get("/v1/bulk-acts/b1")).json()
    assert (done["state"], done["accepted"], done["total"]) == ("done", 3, 3)
    for run in runs:
        result = await api.get(f"{run}/result", headers={"Prefer": "wait=60"})
        assert result.json()["status"] == "cancelled"
    assert (await api.get(other)).json()["status"] == "blocked"
    again = await api.post("/v1/bulk-acts", json={**wanted, "id": "b1"})
    assert again.json()["started_at_ms"] == done["started_at_ms"]


@pytest.mark.parametrize(
    "body",
    [
        {"type": "CANCEL"},
        {"type": "CANCEL", "where": ""},
        {"type": "CANCEL", "filters": {"statu": ["failed"]}},
        {"type": "SKIP_STEP", "where": "status=blocked"},
        {"type": "CANCEL", "where": "status=blocked", "rate": 0},
    ],
)
async def test_a_bulk_act_without_a_filter_is_refused(sqlite_url: str, body: Any) -> None:
    async with served(Engine(sqlite_url)) as api:
        answer = await api.post("/v1/bulk-acts", json=body)
        assert answer.status_code == 422, answer.text


async def test_followers_get_each_entry_once_and_resume_after_the_last(
    api: httpx2.AsyncClient,
) -> None:
    run = await begun(api)
    before = (await api.get(f"{run}/history")).json()["entries"]
    accept = {"Accept": "text/event-stream"}
    followed = asyncio.create_task(api.get(f"{run}/history", headers=accept))
    resumed = asyncio.create_task(
        api.get(f"{run}/history", headers={**accept, "Last-Event-ID": str(before - 1)})
    )
    await api.post(f"{run}/signals", json={"name": "decision", "value": True})
    whole, rest = ids_in((await followed).text), ids_in((await resumed).text)
    total = (await api.get(f"{run}/history")).json()["entries"]
    assert whole == list(range(total))
    assert rest == list(range(before, total))
    bad = await api.get(f"{run}/history", headers={**accept, "Last-Event-ID": "x"})
    assert bad.status_code == 400


def ids_in(text: str) -> list[int]:
    return [int(line[4:]) for line in text.splitlines() if line.startswith("id: ")]


async def test_schedules_are_read_and_changed(api: httpx2.AsyncClient, store_url: str) -> None:
    async with Engine(store_url, hosts=False) as engine:
        await engine.schedule(
            "nightly", programs.big(1), programs.NIGHTLY, overlap="allow", scope="eu"
        )
    scope = {"scope": "eu"}
    (listed,) = (await api.get("/v1/schedules")).json()["schedules"]
    assert (listed["name"], listed["is_paused"]) == ("nightly", False)
    paused = await api.post("/v1/schedules/nightly/pause", json={"note": "moving"}, params=scope)
    assert (paused.json()["is_paused"], paused.json()["note"]) == (True, "moving")
    assert not (await api.post("/v1/schedules/nightly/resume", params=scope)).json()["is_paused"]
    shown = (await api.get("/v1/schedules/nightly", params=scope)).json()
    assert len(shown["next"]) == 10
    run = (await api.post("/v1/schedules/nightly/trigger", json={}, params=scope)).json()["run_id"]
    result = await api.get(f"/v1/runs/{run}/result", headers={"Prefer": "wait=60"})
    assert result.json()["status"] == "completed"
    assert (await api.get(f"/v1/runs/{run}")).json()["schedule"] == "nightly"
    assert (await api.delete("/v1/schedules/nightly", params=scope)).status_code == 204
    missing = await api.get("/v1/schedules/nightly", params=scope)
    assert (missing.status_code, missing.json()["code"]) == (404, "unknown-schedule")


async def test_sql_reads_and_never_writes(api: httpx2.AsyncClient) -> None:
    await begun(api)
    found = await api.post("/v1/sql", json={"query": "SELECT program FROM perdure_v1_runs"})
    assert found.json() == {"columns": ["program"], "rows": [["api.decide"]], "is_complete": True}
    refused = await api.post("/v1/sql", json={"query": "DROP TABLE perdure_run"})
    assert refused.status_code == 422
