"""Runs for tests of lists, and what a list of them must be by the meaning of its filter."""

from collections.abc import Iterable, Sequence
from random import Random

from perdure.core.errors import RunDiverged
from perdure.core.graph.identity import mailbox_of
from perdure.core.ids import HostId, RunId, new_run_id
from perdure.core.journal.state import TERMINAL, Status
from perdure.core.runs.listing import ANY_TIME, Position, Range, RunFilter, next_position
from perdure.store.rows.lists import ListedRun
from perdure.store.store import Store
from tests.store.builders import NOW, raw

APPROVAL = "approval"
FINGERPRINTS = ("f1", "f2")


def some_runs(count: int, seed: int = 1) -> list[ListedRun]:
    """Runs of every kind. Some start in the same millisecond, some end in the same one, some ids sort beside others."""
    random = Random(seed)
    runs: list[ListedRun] = []
    for number in range(count):
        at_ms = NOW + number // 3
        status = random.choice(list(Status))
        is_over = status in TERMINAL
        parent = random.choice(runs) if runs and random.random() < 0.3 else None
        first = random.choice(runs) if runs and random.random() < 0.2 else None
        beside = parent or first
        id_ms = at_ms if beside is None else int(beside.run_id[2:14], 16)
        run = ListedRun(
            new_run_id(id_ms, random.randbytes(10)),
            random.choice(["", "acme"]),
            random.choice(["checkout", "refund"]),
            random.choice(["1", "2"]),
            f"order-{number}" if random.random() < 0.5 else None,
            status,
            random.choice([None, None, None, f"{RunDiverged.code}: why", "unknown-name: why"]),
            None if is_over or random.random() < 0.3 else HostId(random.choice("ab")),
            None if parent is None else parent.run_id,
            random.choice(runs).run_id if runs and random.random() < 0.2 else None,
            None if first is None else first.chain or first.run_id,
            random.choice(FINGERPRINTS) if status is Status.FAILED else None,
            1,
            at_ms,
            NOW + 100 + random.randrange(5) if is_over else None,
            {n: random.choice("xy") for n in ("color", "size") if random.random() < 0.5},
        )
        runs.append(run)
    random.shuffle(runs)
    return runs


def waits_for(run: ListedRun) -> str | None:
    """The signal that the run waits for: every third open one waits, some with a hook."""
    if run.closed_at_ms is not None or int(run.run_id[-2:], 16) % 3:
        return None
    return APPROVAL


def parked_error(run: ListedRun) -> str | None:
    """The error of the run's parked steps: every fifth open one has two."""
    if run.closed_at_ms is not None or int(run.run_id[-2:], 16) % 5:
        return None
    return FINGERPRINTS[0]


async def insert(store: Store, runs: Iterable[ListedRun]) -> None:
    """Write only the rows that lists read."""
    for run in runs:
        values = (
            *(run.run_id, run.scope, run.program, run.version, "", run.key, run.owner, 1, 1, 0),
            *(run.status.value, run.created_at_ms, run.closed_at_ms, run.parked, run.chain),
            *(run.parent, run.forked_from, run.error),
        )
        await raw(
            store,
            "INSERT INTO {}run (id, scope, program, version, digest, key, owner, epoch, seq, semaphore, status,"
            " created_at_ms, closed_at_ms, parked, chain, parent, forked_from, error, head)"
            f" VALUES ({', '.join(map(literal, values))}, {empty(store)})",
        )
        if parked_error(run):
            for step in ("root.1", "root.2"):
                parked = run.run_id, step, "charge", parked_error(run), 0
                await raw(
                    store,
                    "INSERT INTO {}parked_step (run_id, step, task, error, since_ms)"
                    f" VALUES ({', '.join(map(literal, parked))})",
                )
        for name, value in run.tags.items():
            await insert_hook(store, run.run_id, "key", name, value)
        if waits_for(run):
            if run.status is not Status.BLOCKED:
                await insert_hook(store, run.run_id, "wait", APPROVAL, "k")
                continue
            awaiting = (
                '{"type":"ExecutionAwaiting","waiting_on":["root.0"],"kind":"signal",'
                f'"signal":{{"name":"{APPROVAL}","promise_id":"root.0"}}}}'
            )
            await raw(
                store,
                "INSERT INTO {}event (run_id, seq, at_ms, body, prev)"
                f" VALUES ('{run.run_id}', 0, 0, '{awaiting.replace('{', '{{').replace('}', '}}')}',"
                f" {empty(store)})",
            )


async def insert_hook(store: Store, run_id: RunId, kind: str, name: str, value: str) -> None:
    values = (run_id, "root", kind, mailbox_of(name, value), name, value, 0)
    await raw(
        store,
        "INSERT INTO {}hook (run_id, step, kind, mailbox, topic, key, since_ms)"
        f" VALUES ({', '.join(map(literal, values))})",
    )


def literal(value: object) -> str:
    return "NULL" if value is None else f"'{value}'" if isinstance(value, str) else str(value)


def empty(store: Store) -> str:
    return "x''" if store.name.startswith("sqlite") else "''"


def expected(runs: Sequence[ListedRun], wanted: RunFilter) -> list[RunId]:
    """The whole list."""
    found = [run for run in runs if matches(run, wanted)]
    if wanted.in_order_of_end:
        found.sort(key=lambda run: (run.closed_at_ms, run.run_id), reverse=True)
    else:
        found.sort(key=lambda run: run.run_id, reverse=True)
    return [run.run_id for run in found]


def matches(run: ListedRun, wanted: RunFilter) -> bool:
    shown = run.status.value
    if run.parked is not None:
        shown = "diverged" if run.parked.startswith(RunDiverged.code) else "parked"
    return all(
        (
            wanted.statuses is None or shown in wanted.statuses,
            wanted.program in (None, run.program),
            wanted.version in (None, run.version),
            wanted.scope in (None, run.scope),
            wanted.key_prefix is None or (run.key or "").startswith(wanted.key_prefix),
            wanted.tags.items() <= run.tags.items(),
            wanted.parent in (None, run.parent),
            wanted.chain in (None, run.chain, run.run_id),
            wanted.forked_from in (None, run.forked_from),
            in_range(run.created_at_ms, wanted.created),
            in_range(run.closed_at_ms, wanted.closed),
            wanted.parked in (None, run.parked is not None),
            wanted.waiting_for in (None, waits_for(run)),
            wanted.error in (None, run.error, parked_error(run)),
        )
    )


def in_range(at_ms: int | None, bounds: Range) -> bool:
    if bounds == ANY_TIME:
        return True
    least, most = bounds
    return (
        at_ms is not None and (least is None or least <= at_ms) and (most is None or at_ms <= most)
    )


def each_filter(runs: Sequence[ListedRun]) -> dict[str, RunFilter]:
    """Every filter alone, and pairs that different indexes serve."""
    parent = next(run.parent for run in runs if run.parent)
    fork = next(run.forked_from for run in runs if run.forked_from)
    chain = next(run.chain for run in runs if run.chain)
    ended = frozenset({"completed", "failed"})
    return {
        "none": RunFilter(),
        "failed": RunFilter(statuses=frozenset({"failed"})),
        "ended": RunFilter(statuses=ended),
        "open": RunFilter(statuses=frozenset({"running", "blocked"})),
        "open and ended": RunFilter(statuses=frozenset({"blocked", "failed"})),
        "shown as parked": RunFilter(statuses=frozenset({"parked"})),
        "shown as diverged": RunFilter(statuses=frozenset({"diverged"})),
        "program": RunFilter(program="refund"),
        "scope": RunFilter(scope="acme"),
        "scope and program": RunFilter(scope="", program="refund"),
        "version": RunFilter(version="2"),
        "keys": RunFilter(key_prefix="order-1"),
        "keys of a program": RunFilter(key_prefix="order-", program="checkout", scope=""),
        "tag": RunFilter(tags={"color": "x"}),
        "two tags": RunFilter(tags={"color": "x", "size": "y"}),
        "tag and closed": RunFilter(tags={"color": "x"}, closed=(NOW, None)),
        "parent": RunFilter(parent=parent),
        "fork": RunFilter(forked_from=fork),
        "chain": RunFilter(chain=chain),
        "error": RunFilter(error="f1"),
        "created": RunFilter(created=(NOW + 3, NOW + 9)),
        "created until": RunFilter(created=(None, NOW + 5)),
        "closed": RunFilter(closed=(NOW + 101, NOW + 103)),
        "closed from": RunFilter(closed=(NOW + 102, None), statuses=ended),
        "parked": RunFilter(parked=True),
        "not parked": RunFilter(parked=False, program="checkout"),
        "waiting for": RunFilter(waiting_for=APPROVAL),
        "waiting in a scope": RunFilter(waiting_for=APPROVAL, scope="acme"),
        "nothing": RunFilter(program="none", statuses=frozenset({"failed"})),
    }


def skipping_at_edges(
    positions: Sequence[Position], limit: int, boundary: Position | None
) -> Position | None:
    """The seeded bug: a page continues after the run that was read beyond its limit, which no page shows."""
    return positions[limit] if len(positions) > limit else next_position(positions, limit, boundary)
