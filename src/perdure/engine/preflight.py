"""Preflight: would every open run go on with the code that is registered here?

Runs are read one at a time, each in a snapshot of its own, whoever owns them: so a long check holds nothing back,
needs no more memory than the longest journal and what it finds, and takes nothing from a host that is at work.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence

import msgspec

from perdure.core.codec import Codec
from perdure.core.errors import UnknownName
from perdure.engine.programs import Programs
from perdure.engine.replay.rehearsal import DivergedRun, Rehearsal, StrandedRun, rehearse
from perdure.engine.sources import Sources
from perdure.store.store import Store

PAGE = 500
"""Ids of runs that are read at a time."""


class VersionUse(msgspec.Struct, frozen=True):
    """How many open runs began with a version, and on which one they were replayed: `None` if on none."""

    program: str
    version: str
    replayed_on: str | None
    runs: int


class PatchUse(msgspec.Struct, frozen=True):
    """How many open runs of a program follow a patch, and how many were past it when it came and need the old code.

    Of `unknown` ones nothing can be said: they can't be replayed. Runs that have not come to it yet are in no count.
    """

    program: str
    patch: str
    follow: int
    missed: int
    unknown: int

    @property
    def is_retirable(self) -> bool:
        """Whether no open run needs the old code: `if patched(...)` may go, and the new code stays."""
        return not (self.missed or self.unknown)


class Preflight(msgspec.Struct, frozen=True):
    """What was found: `runs` were replayed, of `place`. It holds for the moment in which each was read."""

    place: str
    runs: int
    divergences: list[DivergedRun]
    stranded: list[StrandedRun]
    versions: list[VersionUse]
    patches: list[PatchUse]

    @property
    def is_clean(self) -> bool:
        """Whether every run would go on."""
        return not (self.divergences or self.stranded)

    def __str__(self) -> str:
        stuck = [*self.divergences, *self.stranded]
        verdict = "all go on" if self.is_clean else f"{len(stuck):,} would not go on"
        return "\n".join([f"{self.place}: open runs {self.runs:,}, {verdict}", *map(str, stuck)])


async def preflight(
    store: Store,
    codec: Codec,
    sources: Sources,
    known: Programs,
    programs: Sequence[str] | None = None,
) -> Preflight:
    """Rehearse every open run, of `programs` if they are given, and sum up.

    Raises `UnknownName` for a program that is neither registered here nor has open runs.
    """
    runs = 0
    divergences: list[DivergedRun] = []
    stranded: list[StrandedRun] = []
    versions: Counter[tuple[str, str, str | None]] = Counter()
    patches = _PatchCounts()
    async for rehearsal in rehearsals(store, codec, sources, known, programs):
        runs += 1
        versions[rehearsal.program, rehearsal.version, rehearsal.replayed_on] += 1
        patches.add(rehearsal)
        if isinstance(rehearsal.problem, DivergedRun):
            divergences.append(rehearsal.problem)
        elif rehearsal.problem is not None:
            stranded.append(rehearsal.problem)
    for name in programs or ():
        if known.find(name) is None and not any(name == program for program, *_ in versions):
            raise UnknownName(
                f"no workflow {name!r} is registered here, and no open run is of one",
                "check the name, or import the module that defines it",
            )
    used = [VersionUse(*use, count) for use, count in versions.items()]
    used.sort(key=lambda use: (use.program, use.version, use.replayed_on or ""))
    return Preflight(store.name, runs, divergences, stranded, used, patches.sum_up())


async def rehearsals(
    store: Store,
    codec: Codec,
    sources: Sources,
    known: Programs,
    programs: Sequence[str] | None = None,
) -> AsyncIterator[Rehearsal]:
    """Every open run, in the order of ids. One that ends before it is read is left out."""
    after = None
    while ids := await store.open_ids(after, PAGE, programs):
        for run_id in ids:
            for run, entries in await store.load([run_id]):
                if run.closed_at_ms is None:
                    yield rehearse(run, entries, codec, sources, known)
            # A store in memory never waits; others must have their turn all the same.
            await asyncio.sleep(0)
        after = ids[-1]


class _PatchCounts:
    """Who follows what, by program and patch."""

    def __init__(self) -> None:
        self._follow: Counter[tuple[str, str]] = Counter()
        self._missed: Counter[tuple[str, str]] = Counter()
        self._stuck: Counter[str] = Counter()
        self._stuck_but_marked: Counter[tuple[str, str]] = Counter()

    def add(self, rehearsal: Rehearsal) -> None:
        program = rehearsal.program
        marked = [(program, patch) for patch in rehearsal.marked]
        self._follow.update(marked)
        self._missed.update((program, patch) for patch in rehearsal.missed)
        if rehearsal.problem is not None:
            self._stuck[program] += 1
            self._stuck_but_marked.update(marked)

    def sum_up(self) -> list[PatchUse]:
        uses = []
        for use in sorted({*self._follow, *self._missed}):
            unknown = self._stuck[use[0]] - self._stuck_but_marked[use]
            uses.append(PatchUse(*use, self._follow[use], self._missed[use], unknown))
        return uses
