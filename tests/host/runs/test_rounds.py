"""Turns of one round share its phases, and a failed turn does not affect the others."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import cast

import pytest

from perdure.host.runs.batch import Batch
from perdure.host.runs.rounds import Rounds
from perdure.host.runs.staging import Staging


class LetterTurn:
    def __init__(
        self, begin: Callable[[], Batch], on_decided: Callable[[BaseException | None], None]
    ) -> None:
        self.begin = begin
        self._on_decided = on_decided

    def __call__(self, outcome: BaseException | None) -> None:
        self._on_decided(outcome)


class RecordingStaging:
    """Records each phase of each turn, and raises the given failures. A batch is a letter here."""

    def __init__(self, **failures: BaseException) -> None:
        self.log: list[str] = []
        self.decided: dict[str, BaseException | None] = {}
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

    def submit(self, batch: Batch, on_decided: Callable[[BaseException | None], None]) -> None:
        self._note("submit", batch)
        on_decided(None)

    def rounds(self, *names: str) -> Rounds:
        rounds = Rounds(cast("Staging", self), self.submit)
        for name in names:
            rounds.add(
                LetterTurn(partial(self.begin, name), partial(self.decided.__setitem__, name))
            )
        return rounds


def steps(phases: str, names: str) -> list[str]:
    return [f"{phase} {name}" for phase in phases.split() for name in names]


ALL = "begin reserve write submit"


async def test_all_turns_pass_a_phase_before_the_next_phase() -> None:
    staging = RecordingStaging()
    rounds = staging.rounds("a", "b")
    assert rounds
    assert staging.log == []
    await asyncio.sleep(0)
    assert staging.log == steps(ALL, "ab")
    assert staging.decided == {"a": None, "b": None}
    assert not rounds


@pytest.mark.parametrize("phase", ALL.split())
async def test_failed_turn_gets_its_error_and_the_others_continue(phase: str) -> None:
    failure = ValueError("no")
    staging = RecordingStaging(**{f"{phase}_b": failure})
    staging.rounds("a", "b", "c")
    await asyncio.sleep(0)
    assert staging.decided == {"a": None, "b": failure, "c": None}
    later = ALL.split()[ALL.split().index(phase) + 1 :]
    assert not {f"{each} b" for each in later} & {*staging.log}


def test_interrupt_is_raised_after_the_other_turns() -> None:
    interrupt = KeyboardInterrupt()
    staging = RecordingStaging(begin_a=interrupt)

    async def take_turns() -> None:
        staging.rounds("a", "b")
        await asyncio.sleep(0)

    with asyncio.Runner() as runner, pytest.raises(KeyboardInterrupt):
        runner.run(take_turns())
    assert staging.decided == {"a": interrupt, "b": None}


async def test_turn_added_during_a_round_goes_into_the_next() -> None:
    staging = RecordingStaging()
    rounds = Rounds(cast("Staging", staging), staging.submit)

    def begin_and_add() -> Batch:
        rounds.add(
            LetterTurn(partial(staging.begin, "b"), partial(staging.decided.__setitem__, "b"))
        )
        return staging.begin("a")

    rounds.add(LetterTurn(begin_and_add, partial(staging.decided.__setitem__, "a")))
    await asyncio.sleep(0)
    assert staging.decided == {"a": None}
    await asyncio.sleep(0)
    assert staging.decided == {"a": None, "b": None}


async def test_closed_rounds_take_no_turn() -> None:
    staging = RecordingStaging()
    staging.rounds("a").close()
    await asyncio.sleep(0)
    assert staging.log == []
