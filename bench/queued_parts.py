"""The part of the benchmark that measures queued tasks: beside the same chain in one process, DBOS and Restate."""

from functools import partial

from bench.cells import count, ms, ratio, times
from bench.report import Report
from bench.running import STORES, Bench, Figures, in_turns, restate_server, scaled

RUNS = 500
STEPS = 10
FAN_OUT = 10_000

DBOS_RUNS = 100
"""Fewer than ours: 500 take minutes."""

OF_LOCAL = 0.25
TIMES_DBOS = 20.0
TIMES_RESTATE = 1.0
TIMES_FEW = 12.0
"""What ten times as many tasks of a fan-out may take, of the time of the few."""

DBOS_MODES = [
    ("threads", 100, 0.1),
    ("mixed", 16, 0.1),
    ("coroutines", 4, 0.1),
    *[("coroutines", 16, poll) for poll in (0.02, 0.1, 0.5)],
]
RESTATE_PARTITIONS = (1, 2, 4, 24)

NO_RESTATE = (
    "**Restate is left out: its server is not installed, for which `make bench` needs npm.**"
)


def measure_queued(bench: Bench, report: Report) -> None:
    """One process decides and another one works: chains of queued steps, and a fan-out of queued tasks."""
    bench = bench.with_default_collector()
    _measure_chains(bench, report)
    many = scaled(FAN_OUT)
    few = many // 10
    report.table(
        f"fan-out of {few:,} and of {many:,} queued tasks, executed by another process",
        *("store", "few", "many", "ratio"),
    )
    for store in STORES:
        fews, manys = in_turns(
            *(partial(bench.ours, store, "queued", "fanout", tasks) for tasks in (few, many))
        )
        longer = manys["ms"] / fews["ms"]
        report.row(store, ms(fews["ms"]), ms(manys["ms"]), ratio(longer))
        report.at_most("fan-out of ten times the queued tasks", store, longer, TIMES_FEW)


def _measure_chains(bench: Bench, report: Report) -> None:
    runs, dbos_runs, server = scaled(RUNS), scaled(DBOS_RUNS), restate_server()
    report.table(
        f"queued chains: {runs} runs at once of {STEPS} steps each, one process decides and another one works; the "
        f"same in one process; {dbos_runs} runs on DBOS; remote steps on Restate, with a store of its own; steps/s",
        *("store", "local", "queued", "of local", "DBOS", "times DBOS"),
        *("Restate", "times Restate"),
    )
    for store in STORES:
        programs = [
            partial(bench.ours, store, "chain", "chain", runs, STEPS),
            partial(bench.ours, store, "queued", "chain", runs, STEPS),
            partial(bench.queued_rival, store, dbos_runs, STEPS),
        ]
        if server is not None:
            programs.append(partial(bench.restate, server, runs, STEPS))
        local, ours, dbos, *restate = (each["steps_per_s"] for each in in_turns(*programs))
        report.row(
            *(
                store,
                count(local),
                count(ours),
                ratio(ours / local),
                count(dbos),
                times(ours / dbos),
            ),
            *([*map(count, restate), *(times(ours / each) for each in restate)] or ["-", "-"]),
        )
        report.at_least("queued chain, of the local one", store, ours / local, OF_LOCAL)
        report.at_least("queued chain, times DBOS", store, ours / dbos, TIMES_DBOS)
        for each in restate:
            report.at_least("queued chain, times Restate", store, ours / each, TIMES_RESTATE)
    if server is None:
        report.say(f"\n{NO_RESTATE}")


def measure_rivals(bench: Bench, report: Report) -> None:
    """Ways to use the queues of DBOS, and Restate: the fastest are the defaults of their programs."""
    runs = scaled(DBOS_RUNS)
    report.table(
        f"ways to use DBOS' queues: {runs} runs at once of {STEPS} queued steps each, steps/s",
        *("store", "how", "threads", "poll, s", "steps/s"),
    )
    for store in STORES:
        programs = [partial(bench.queued_rival, store, runs, STEPS, *mode) for mode in DBOS_MODES]
        figures = in_turns(*programs)
        for mode, each in zip(DBOS_MODES, figures, strict=True):
            report.row(store, *map(str, mode), count(each["steps_per_s"]))
    _measure_restate(bench, report)


def _measure_restate(bench: Bench, report: Report) -> None:
    server, runs = restate_server(), scaled(RUNS)
    if server is None:
        report.say(f"\n{NO_RESTATE}")
        return
    report.table(
        f"Restate by its number of partitions: {runs} runs at once of {STEPS} remote steps each",
        *("partitions", "steps/s"),
    )
    programs = [partial(bench.restate, server, runs, STEPS, each) for each in RESTATE_PARTITIONS]
    figures: list[Figures] = in_turns(*programs)
    for partitions, each in zip(RESTATE_PARTITIONS, figures, strict=True):
        report.row(str(partitions), count(each["steps_per_s"]))
