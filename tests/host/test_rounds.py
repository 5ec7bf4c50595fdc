"""Turns that are taken together do not suffer from each other."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import cast

import pytest

from perdure.host.batch import Batch
from perdure.host.rounds import Rounds
from perdure.host.staging import Staging


class Stage:
    """A stage that notes what happens on it, and fails where it is told to. A batch is a letter here."""

    def __init__(self, **failures: BaseException) -> None:
        self.log: list[str] = []
        self.told: dict[str, BaseException | None] = {}
        self._failures = failures

    def _note(self, phase: str, batch: object) -> None:
        self.log.append(f"{phase} {batch}")
        failure = self._failures.get(f"{phase}_{batch}")
        if failure is not None:
            raise failure

    def begin(self, name: str) -> Batch:
        self._note("begin", name)
        return cast("Batch", name)

    def reserve(self, batch: Batch) -> Batch:
        self._note("reserve", batch)
        return batch

    def write(self, batch: Batch) -> Batch:
        self._note("write", batch)
        return batch

    def submit(self, batch: Batch, told: Callable[[BaseException | None], None]) -> None:
        self._note("submit", batch)
        told(None)

    def rounds(self, *names: str) -> Rounds:
        rounds = Rounds(cast("Staging", self), self.submit)
        for name in names:
            rounds.add(partial(self.begin, name), partial(self.told.__setitem__, name))
        return rounds


def steps(phases: str, names: str) -> list[str]:
    return [f"{phase} {name}" for phase in phases.split() for name in names]


ALL = "begin reserve write submit"


async def test_each_phase_is_taken_by_all_before_the_next() -> None:
    stage = Stage()
    rounds = stage.rounds("a", "b")
    assert rounds
    assert stage.log == []
    await asyncio.sleep(0)
    assert stage.log == steps(ALL, "ab")
    assert stage.told == {"a": None, "b": None}
    assert not rounds


@pytest.mark.parametrize("phase", ALL.split())
async def test_a_turn_that_fails_hears_of_it_and_the_others_go_on(phase: str) -> None:
    failure = ValueError("no")
    stage = Stage(**{f"{phase}_b": failure})
    stage.rounds("a", "b", "c")
    await asyncio.sleep(0)
    assert stage.told == {"a": None, "b": failure, "c": None}
    later = ALL.split()[ALL.split().index(phase) + 1 :]
    assert not {f"{each} b" for each in later} & {*stage.log}


async def test_an_interrupt_is_raised_when_the_others_are_through() -> None:
    interrupt = KeyboardInterrupt()
    stage = Stage(begin_a=interrupt)
    rounds = stage.rounds("a", "b")
    with pytest.raises(KeyboardInterrupt):
        rounds._take()
    assert stage.told == {"a": interrupt, "b": None}


async def test_what_is_added_meanwhile_is_of_the_next_round() -> None:
    stage = Stage()
    rounds = Rounds(cast("Staging", stage), stage.submit)

    def begin_and_add() -> Batch:
        rounds.add(partial(stage.begin, "b"), partial(stage.told.__setitem__, "b"))
        return stage.begin("a")

    rounds.add(begin_and_add, partial(stage.told.__setitem__, "a"))
    await asyncio.sleep(0)
    assert stage.told == {"a": None}
    await asyncio.sleep(0)
    assert stage.told == {"a": None, "b": None}


async def test_a_closed_one_takes_no_turn() -> None:
    stage = Stage()
    stage.rounds("a").close()
    await asyncio.sleep(0)
    assert stage.log == []
