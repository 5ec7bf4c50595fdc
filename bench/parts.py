"""The parts of the benchmark: each measures one thing, prints its table, and says what the goals make of it."""

from collections.abc import Callable
from functools import partial

from bench.active_part import measure_active
from bench.admission_part import measure_admission
from bench.bus_part import measure_bus
from bench.cells import count as _count
from bench.cells import ms as _ms
from bench.cells import ratio as _ratio
from bench.cells import seconds as _s
from bench.cells import times as _times
from bench.hop_parts import measure_hops
from bench.list_parts import measure_lists
from bench.queued_parts import measure_queued, measure_rivals
from bench.report import Report
from bench.running import STORES, Bench, Figures, Program, in_turns, scaled
from bench.tracing_part import measure_tracing

Part = Callable[[Bench, Report], None]

SUBMITTERS = {1: 1000, 16: 250, 500: 20}
"""Steps of each run of the floor and of the committer, by the number of submitters."""

RUNS = 500
STEPS = 10
LATENCY_RUNS = 500
LONG_STEPS = 20_000
TASKS = 1000
SLEEPERS = 100_000
IN_FLIGHT = 5000
TAKEN_OVER = 500
WARM_RUNS = 2000
SPREAD_ITEMS = 10_000
TURNS = 10_000

TIMES_DBOS = {"sqlite": 30.0, "postgres": 20.0}
"""How many times as fast as DBOS we want to be."""


DBOS_RUNS = 100
DBOS_MODES = {
    "sqlite": [
        *[("background", threads, 1) for threads in (1, 2, 4, 8)],
        *[("background", threads, 20) for threads in (2, 4, 64)],
        *[("coroutines", 64, connections) for connections in (1, 20)],
        ("queue", 64, 20),
    ],
    "postgres": [
        *[("background", threads, 20) for threads in (2, 4, 8, 16, 64)],
        *[("coroutines", 64, connections) for connections in (20, 50)],
        ("queue", 64, 20),
    ],
}


def measure_committer(bench: Bench, report: Report) -> None:
    """Bundles of a real step, with and without the journal that makes them."""
    report.table(
        "committer: steps/s, and the median time of one commit as its submitter sees it; ratios to the floor",
        *("store", "submitters", "floor", "committer", "ratio", "with journal", "ratio"),
        *("floor", "committer", "ratio"),
    )
    for store in STORES:
        for submitters, steps in SUBMITTERS.items():
            ours = partial(bench.ours, store, "committer", submitters, scaled(steps))
            floor, committer = in_turns(_floor(bench, store, submitters), ours)
            base, raw = floor["steps_per_s"], floor["commit_ms"]
            speed, whole = committer["steps_per_s"], committer["journal_steps_per_s"]
            wait = committer["commit_ms"]
            report.row(
                *(store, str(submitters), _count(base), _count(speed), _ratio(speed / base)),
                *(_count(whole), _ratio(whole / base), _ms(raw), _ms(wait), _ratio(wait / raw)),
            )
            if submitters == 500:
                report.at_least("committer, of the floor", store, speed / base, 0.5)
            if submitters == 1:
                report.at_most("commit, of the floor's", store, wait / raw, 1.5)


def measure_chain(bench: Bench, report: Report) -> None:
    """Many runs at once, each a chain of steps."""
    runs, steps = scaled(RUNS), STEPS
    report.table(
        f"chain: {runs} runs at once of {steps} steps each, steps/s; the floor at {RUNS} submitters",
        *("store", "floor", "ours", "of the floor", "DBOS", "times DBOS"),
        *("bundles per step", "bundles per commit"),
    )
    for store in STORES:
        floor, ours, dbos = in_turns(
            _floor(bench, store, RUNS),
            partial(bench.ours, store, "chain", "chain", runs, steps),
            partial(bench.rival, store, "chain", runs, steps),
        )
        base, speed, theirs = (each["steps_per_s"] for each in (floor, ours, dbos))
        report.row(
            *(store, _count(base), _count(speed), _ratio(speed / base), _count(theirs)),
            *(_times(speed / theirs), f"{ours['bundles_per_step']:.3f}"),
            _count(ours["bundles_per_group"]),
        )
        report.at_least("chain, times DBOS", store, speed / theirs, TIMES_DBOS[store])
        if store == "sqlite":
            report.at_least("chain, of the floor", store, speed / base, 1 / 3)


def measure_single(bench: Bench, report: Report) -> None:
    """Runs of one step: as many as possible, and one at a time on an idle engine."""
    runs = scaled(RUNS)
    report.table(
        f"runs of one step: {runs} at once, runs/s; and one by one, from start to result",
        *("store", "ours", "DBOS", "times DBOS"),
        *("two raw commits", "ours, p50", "ratio", "ours, p99", "DBOS, p50"),
    )
    for store in STORES:
        ours, dbos, floor, alone, dbos_alone = in_turns(
            partial(bench.ours, store, "chain", "single", runs, 1),
            partial(bench.rival, store, "chain", runs, 1),
            _floor(bench, store, 1),
            partial(bench.ours, store, "latency", scaled(LATENCY_RUNS)),
            partial(bench.rival, store, "latency", scaled(LATENCY_RUNS // 2), 1),
        )
        times_dbos = ours["runs_per_s"] / dbos["runs_per_s"]
        raw, p50 = 2 * floor["commit_ms"], alone["p50_ms"]
        report.row(
            *(store, _count(ours["runs_per_s"]), _count(dbos["runs_per_s"]), _times(times_dbos)),
            *(_ms(raw), _ms(p50), _ratio(p50 / raw), _ms(alone["p99_ms"])),
            _ms(dbos_alone["p50_ms"]),
        )
        report.at_least("runs of one step, times DBOS", store, times_dbos, TIMES_DBOS[store])
        report.at_most("latency of one step, of two raw commits", store, p50 / raw, 2)


def measure_long(bench: Bench, report: Report) -> None:
    """One run of many steps: whether they get dearer, and how quickly its journal is replayed."""
    steps = scaled(LONG_STEPS)
    rows = {store: in_turns(partial(_long_figures, bench, store, steps))[0] for store in STORES}
    report.table(
        f"one run of {steps:,} steps: each of its first 500 and of its last 500, by the clock and in work of the "
        "loop's thread",
        *("store", "first", "last", "ratio", "first, work", "last, work", "ratio"),
    )
    for store, long in rows.items():
        ratios = _ends(report, store, long)
        report.at_most("last steps of a long run, of the first", store, ratios[0], 1.2)
        report.at_most("the same, in work of the loop's thread", store, ratios[1], 1.2)
    report.table(
        "its journal, brought back in a fresh process; steps/s",
        *(
            "store",
            "read",
            "rebuild the journal",
            "replay the program",
            "in all",
        ),
        *("replay, steps/s", "in all, steps/s"),
    )
    for store, long in rows.items():
        parts = [long[f"{name}_s"] for name in ("read", "rebuild", "replay")]
        speed, whole = long["steps"] / long["replay_s"], long["steps"] / sum(parts)
        report.row(store, *map(_s, [*parts, sum(parts)]), _count(speed), _count(whole))
        report.at_least("replay of the program", store, speed, 50_000, "steps/s")


def _ends(report: Report, store: str, run: Figures) -> list[float]:
    """A row for the first and the last part of a run. Returns their ratios, by the clock and in work."""
    ratios = [run[f"last{kind}_ms"] / run[f"first{kind}_ms"] for kind in ("", "_work")]
    report.row(
        *(store, _ms(run["first_ms"]), _ms(run["last_ms"]), _ratio(ratios[0])),
        *(f"{run['first_work_ms']:.3f} ms", f"{run['last_work_ms']:.3f} ms"),
        _ratio(ratios[1]),
    )
    return ratios


def _long_figures(bench: Bench, store: str, steps: int) -> Figures:
    with bench.database(store) as url:
        long = bench.ours_on(url, "chain", "long", 1, steps)
        return long | bench.ours_on(url, "replay")


def measure_fanout(bench: Bench, report: Report) -> None:
    """One run that gathers many tasks, beside a floor that writes as many rows in as many commits."""
    tasks = scaled(TASKS)
    report.table(
        f"fan-out of {tasks:,} tasks and their sum; the floor writes as many rows in as many commits",
        *("store", "entries", "accounts", "commits", "floor", "ours", "ratio"),
        *("asyncio.gather", "ratio to ours"),
    )
    for store in STORES:
        # Only ours can tell how much there is to write.
        seen = bench.ours(store, "fanout", tasks)
        rows = [round(seen[name]) for name in ("entries", "accounts", "commits")]
        floor, ours, asyncios = in_turns(
            partial(bench.floor, store, "rows", *rows),
            partial(bench.ours, store, "fanout", tasks),
            partial(bench.ours, store, "fanout", tasks, "asyncio"),
        )
        ratio, asyncio_ratio = ours["ms"] / floor["ms"], asyncios["ms"] / ours["ms"]
        report.row(
            *(store, *map(_count, rows), _ms(floor["ms"]), _ms(ours["ms"]), _ratio(ratio)),
            *(_ms(asyncios["ms"]), _ratio(asyncio_ratio)),
        )
        report.at_most("fan-out by asyncio.gather, of perdure.gather", store, asyncio_ratio, 1.3)
        report.at_most("fan-out, of the floor", store, ratio, 4)


def measure_graph_chain(bench: Bench, report: Report) -> None:
    """The same chain as a graph and as a workflow."""
    runs = scaled(RUNS)
    report.table(
        f"graph-chain: {runs} runs at once of {STEPS} workers each, beside the same chain as a workflow: steps/s, and "
        "work of the process for each step",
        *("store", "workflow", "graph", "ratio", "workflow, work", "graph, work", "ratio"),
        *("bundles per step", "bundles per commit"),
    )
    for store in STORES:
        workflow, graph = in_turns(
            partial(bench.ours, store, "chain", "chain", runs, STEPS),
            partial(bench.ours, store, "graphs", "chain", runs),
        )
        speeds = workflow["steps_per_s"], graph["steps_per_s"]
        works = workflow["step_work_ms"], graph["step_work_ms"]
        ratios = speeds[0] / speeds[1], works[1] / works[0]
        report.row(
            *(store, *map(_count, speeds), _ratio(ratios[0])),
            *(*(f"{work:.3f} ms" for work in works), _ratio(ratios[1])),
            *(f"{graph['bundles_per_step']:.3f}", _count(graph["bundles_per_group"])),
        )
        report.at_most("chain of a graph, of a workflow's time", store, ratios[0], 1.5)
        report.at_most("the same, in work of the process", store, ratios[1], 1.5)


def measure_graph_spread(bench: Bench, report: Report) -> None:
    """One graph run that spreads over items and aggregates them: whether ten times as many take ten times as long."""
    many = scaled(SPREAD_ITEMS)
    few = many // 10
    report.table(
        f"graph-spread: a spread over {few:,} and over {many:,} items, a worker for each, and their aggregate",
        *("store", "few", "many", "ratio"),
    )
    for store in STORES:
        (figures,) = in_turns(partial(bench.ours, store, "graphs", "spread", many))
        spent = figures["few_ms"], figures["many_ms"]
        report.row(store, *map(_ms, spent), _ratio(spent[1] / spent[0]))
        report.at_most("spread over ten times the items", store, spent[1] / spent[0], 12)


def measure_graph_cycle(bench: Bench, report: Report) -> None:
    """One graph run that goes round and round: whether its turns get dearer."""
    turns = scaled(TURNS)
    report.table(
        f"graph-cycle: one run of {turns:,} turns: each of the first tenth and of the last, by the clock and in work "
        "of the loop's thread",
        *("store", "first", "last", "ratio", "first, work", "last, work", "ratio"),
    )
    for store in STORES:
        (cycle,) = in_turns(partial(bench.ours, store, "graphs", "cycle", turns))
        ratios = _ends(report, store, cycle)
        report.at_most("last turns of a long cycle, of the first", store, ratios[0], 1.2)
        report.at_most("the same, in work of the loop's thread", store, ratios[1], 1.2)


def measure_recovery(bench: Bench, report: Report) -> None:
    """Runs that were in the middle of a step when their process was killed."""
    runs = scaled(IN_FLIGHT)
    report.table(
        f"{runs:,} runs in flight, their process killed with -9; times from the next opening on; one measurement",
        *("store", "serves", "first step", "last step", "all resumed", "runs/s"),
    )
    for store in STORES:
        figures = bench.ours(store, "recovery", runs)
        moments = [figures[name] for name in ("served_s", "first_s", "last_s", "over_s")]
        report.row(store, *map(_s, moments), _count(runs / figures["over_s"]))


def measure_takeover(bench: Bench, report: Report) -> None:
    """Runs of a host that is killed, or paused, beside another one that lives."""
    runs = scaled(TAKEN_OVER)
    report.table(
        f"{runs:,} runs in flight on one host, and another one beside it; times from the kill, or the pause, on; "
        "one measurement",
        *("store", "the host was", "first step", "last step", "all resumed"),
    )
    for store in STORES:
        for how in ("killed", "paused"):
            figures = bench.ours(store, "takeover", runs, how)
            moments = [figures[name] for name in ("first_s", "last_s", "over_s")]
            report.row(store, how, *map(_s, moments))


def measure_memory(bench: Bench, report: Report) -> None:
    """What a run needs while it waits in memory."""
    report.table(
        f"a warm run that sleeps: what the process grows by, of {scaled(WARM_RUNS):,} runs; one measurement",
        *("steps behind it", "resident memory", "tracked objects"),
    )
    for steps in (0, STEPS):
        figures = bench.ours("sqlite", "memory", scaled(WARM_RUNS), steps)
        objects = figures["objects_per_run"]
        report.row(str(steps), f"{figures['kb_per_run']:.1f} kB", f"{objects:.0f}")


def measure_sleepers(bench: Bench, report: Report) -> None:
    """Runs that sleep: their memory, and how late they wake. On SQLite."""
    _sleepers(bench, report, "sqlite")


def measure_sleepers_postgres(bench: Bench, report: Report) -> None:
    """The same on Postgres. Not among the parts that run unasked: it takes minutes."""
    _sleepers(bench, report, "postgres")


def _sleepers(bench: Bench, report: Report, store: str) -> None:
    runs = scaled(SLEEPERS)
    figures = bench.ours(store, "sleepers", runs)
    few, memory = figures["few_mb"], figures["all_mb"]
    late = [figures[f"late_{name}_ms"] for name in ("p50", "p99", "worst")]
    report.table(
        f"{runs:,} sleeping runs; one measurement",
        *("store", "with 1,000", "with all", "fell asleep", "were due", "woke"),
        *("late, p50", "late, p99", "late, worst"),
    )
    report.row(
        *(store, f"{few:.0f} MB", f"{memory:.0f} MB"),
        *(f"{figures['asleep_per_s']:,.0f}/s", f"{figures['due_per_s']:,.0f}/s"),
        *(_count(figures["woken"]), *map(_ms, late)),
    )
    report.at_most("memory of sleeping runs, beyond that of 1,000", store, memory - few, 50, "MB")
    report.at_least("sleeping runs that wake", store, figures["woken"], runs)
    report.at_most("the latest to wake", store, late[-1] / 1000, 1, "s")


def measure_dbos(bench: Bench, report: Report) -> None:
    """Ways to use DBOS: the fastest are in `bench/dbos_chain.py`, as its defaults."""
    runs, singles = scaled(DBOS_RUNS), scaled(DBOS_RUNS * 3)
    report.table(
        f"ways to use DBOS: {runs} runs at once of {STEPS} steps each, steps/s; {singles} runs of one step, runs/s",
        *("store", "how", "threads", "connections", "chain", "one step"),
    )
    for store, modes in DBOS_MODES.items():
        chains = [partial(bench.rival, store, "chain", runs, STEPS, *mode) for mode in modes]
        ones = [partial(bench.rival, store, "chain", singles, 1, *mode) for mode in modes]
        figures = in_turns(*chains, *ones)
        for mode, chain, one in zip(modes, figures, figures[len(modes) :], strict=False):
            speeds = _count(chain["steps_per_s"]), _count(one["runs_per_s"])
            report.row(store, *map(str, mode), *speeds)


def _floor(bench: Bench, store: str, submitters: int) -> Program:
    return partial(bench.floor, store, "steps", submitters, scaled(SUBMITTERS[submitters]))


PARTS: dict[str, Part] = {
    "committer": measure_committer,
    "chain": measure_chain,
    "bus": measure_bus,
    "tracing": measure_tracing,
    "single": measure_single,
    "active": measure_active,
    "long": measure_long,
    "fanout": measure_fanout,
    "graph-chain": measure_graph_chain,
    "graph-spread": measure_graph_spread,
    "graph-cycle": measure_graph_cycle,
    "recovery": measure_recovery,
    "takeover": measure_takeover,
    "hops": measure_hops,
    "queued": measure_queued,
    "lists": measure_lists,
    "admission": measure_admission,
    "memory": measure_memory,
    "sleepers": measure_sleepers,
}
"""What `make bench` measures."""

ON_REQUEST: dict[str, Part] = {
    "dbos": measure_dbos,
    "rivals": measure_rivals,
    "sleepers-postgres": measure_sleepers_postgres,
}
"""What it measures only if it is named."""
