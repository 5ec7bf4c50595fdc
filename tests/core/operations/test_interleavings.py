"""Any number of participants, in any order of events: safety and liveness."""

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from perdure.core.errors import CallsOpen, OperationFailed, OperationOver, ParticipantFenced
from perdure.core.operations import transitions as t
from perdure.core.operations.data import FrameState, LedgerData, OperationState, decode, encode
from tests.core.operations.scenes import SETTINGS, Actor, Scene, actor

R, C, F, D = (
    OperationState.RUNNING,
    OperationState.CLEANUP,
    OperationState.FAILED,
    OperationState.COMPLETED,
)
MAY_FOLLOW = {R: {R, C, D}, C: {C, F}, F: {F}, D: {D}}
REFUSED = (OperationFailed, OperationOver)


class Interleavings(RuleBasedStateMachine):
    """Participants start and end calls, are killed, stopped and continued, abort and complete, while time passes."""

    def __init__(self) -> None:
        super().__init__()
        self.scene = Scene()
        self.scene.check = self.check_step
        self.actors: list[Actor] = []
        self.stopped: set[str] = set()
        self.ever_stopped: set[str] = set()

    @initialize(
        calls=st.lists(st.sampled_from([None, True, False]), min_size=2, max_size=4),
        skews=st.lists(st.integers(-9999, 9999), min_size=4, max_size=4),
    )
    def begin(self, calls: list[bool | None], skews: list[int]) -> None:
        """Every participant has a call that must not crash, or one that may, or none."""
        for n in range(len(calls)):
            # Two of them share their name and their pid.
            self.actors.append(actor(f"p{n // 2}", 7, skew_s=skews[n], origin_ms=skews[n] * 1000))
            self.actors[-1].me = self.actors[-1].me._replace(session=f"s{n}")
            self.actors[-1].watch.me = self.actors[-1].me
        self.scene.create(self.actors[0])
        for who, fail_on_crash in zip(self.actors, calls, strict=True):
            if fail_on_crash is not None:
                self.scene.start(who, fail_on_crash=fail_on_crash)

    def has_several(self) -> bool:
        """Whether a participant is left to detect the death of another."""
        return sum(who.is_up and self.runs(who) and not who.is_fenced for who in self.actors) > 1

    def one(self, data: Any, *, running: bool = True) -> Actor:
        able = [a for a in self.actors if a.is_up and self.runs(a) == running and not a.is_fenced]
        if not able:
            return actor("nobody")
        chosen: Actor = data.draw(st.sampled_from(able), label="who")
        return chosen

    def runs(self, who: Actor) -> bool:
        return who.me.session not in self.stopped

    @rule(data=st.data(), fail_on_crash=st.booleans())
    def start(self, data: Any, fail_on_crash: bool) -> None:
        who = self.one(data)
        if self.scene.ledger is None or who not in self.actors or who.is_cleaned:
            return
        try:
            self.scene.start(who, fail_on_crash=fail_on_crash)
        except REFUSED:
            assert self.scene.ledger.aborted or self.scene.state is not R or self.lost(who)

    @rule(data=st.data())
    def end(self, data: Any) -> None:
        who = self.one(data)
        if self.scene.ledger is None or not who.held:
            return
        call = data.draw(st.sampled_from(sorted(who.held)))
        try:
            self.scene.end(who, call)
        except REFUSED:
            assert self.scene.ledger.aborted or self.scene.state is not R or self.lost(who)

    @rule(data=st.data())
    def beat(self, data: Any) -> None:
        who = self.one(data)
        if who in self.actors:
            self.scene.beat(who)

    @precondition(has_several)
    @rule(data=st.data())
    def beat_and_die(self, data: Any) -> None:
        """The heartbeat is committed, and its duty is not performed."""
        who = self.one(data)
        if who in self.actors:
            self.scene.beat(who, dies=True)

    @precondition(has_several)
    @rule(data=st.data())
    def kill(self, data: Any) -> None:
        self.one(data).is_up = False

    @precondition(has_several)
    @rule(data=st.data())
    def stop(self, data: Any) -> None:
        who = self.one(data)
        self.stopped.add(who.me.session)
        self.ever_stopped.add(who.me.session)

    @rule(data=st.data())
    def resume(self, data: Any) -> None:
        """A stopped participant may return at any time, with its old state."""
        self.stopped.discard(self.one(data, running=False).me.session)

    @rule(data=st.data(), ms=st.integers(500, 4000), times=st.integers(1, 8))
    def let_time_pass(self, data: Any, ms: int, times: int) -> None:
        """In steps so short that running participants are not late; each beats before the longest interval is over."""
        for _ in range(times):
            self.scene.now_ms += ms
            for who in data.draw(st.permutations(self.actors)):
                late = self.scene.now_ms - who.beat_at + 4000 > SETTINGS.heartbeat_longest * 1000
                if who.is_up and self.runs(who) and late and not who.is_fenced:
                    self.scene.beat(who)

    @rule(ms=st.integers(11_000, 100_000))
    def suspend(self, ms: int) -> None:
        """The machine sleeps, and all participants with it."""
        self.scene.now_ms += ms

    @precondition(lambda self: self.scene.now_ms > 60_000)
    @rule(data=st.data())
    def complete(self, data: Any) -> None:
        who, ledger = self.one(data), self.scene.ledger
        if ledger is None or who not in self.actors:
            return
        try:
            self.scene.keep(
                t.complete_operation(ledger, who.me, who.held, self.scene.moment(who).at)
            )
        except CallsOpen:
            assert ledger.stack
        except REFUSED:
            pass
        else:
            assert not ledger.stack

    @precondition(lambda self: self.scene.now_ms > 60_000)
    @rule(data=st.data())
    def abort(self, data: Any) -> None:
        who, ledger = self.one(data), self.scene.ledger
        if ledger is not None and who in self.actors and ledger.operation_state is R:
            try:
                self.scene.keep(
                    t.request_abort(ledger, who.me, who.held, None, self.scene.moment(who).at)
                )
            except ParticipantFenced:
                assert self.lost(who)

    def lost(self, who: Actor) -> bool:
        assert self.scene.ledger is not None
        return t.is_fenced(self.scene.ledger, who.me, who.held)

    def check_step(self, before: LedgerData, after: LedgerData) -> None:
        """States only move forward, crashed calls stay crashed, and only the crash of a required call fails the
        operation."""
        assert after.operation_state in MAY_FOLLOW[before.operation_state]
        crashed = {f.call_id for f in before.stack if f.state is FrameState.CRASHED}
        again = {f.call_id for f in after.stack if f.state is not FrameState.CRASHED}
        assert not crashed & again
        if before.operation_state is R and after.operation_state is C and not after.aborted:
            lost = set(after.crashed_call_ids) - set(before.crashed_call_ids)
            assert any(f.fail_on_crash for f in before.stack if f.call_id in lost)
            assert "crashed" in (after.failure_reason or "")

    @invariant()
    def a_clean_up_has_one_coordinator_and_the_end_has_no_frames(self) -> None:
        data = self.scene.last
        if data is None:
            return
        marked = {f.owner for f in data.stack if f.state is FrameState.CLEANING_UP}
        assert len(marked) == (data.operation_state is C)
        if data.is_over:
            assert data.stack == ()
        if data.operation_state in (C, F):
            assert data.detection_timestamp is not None
            assert data.failure_reason

    @invariant()
    def a_running_process_that_beats_is_never_considered_dead(self) -> None:
        data = self.scene.last
        for who in self.actors:
            if who.is_up and who.me.session not in self.ever_stopped:
                assert not who.is_fenced
                assert data is not None
                assert not who.held & set(data.crashed_call_ids)

    @invariant()
    def the_json_form_is_faithful(self) -> None:
        if self.scene.last is not None:
            assert decode(encode(self.scene.last), "op") == self.scene.last

    def teardown(self) -> None:
        """The remaining participants move a failed operation to the backups, and leave no dead call open."""
        alive = [a for a in self.actors if a.is_up and self.runs(a) and not a.is_fenced]
        if not alive or self.scene.is_over():
            return
        self.scene.run(120, *alive)
        alive = [who for who in alive if not who.is_fenced]
        if not alive:
            return
        ledger = self.scene.last
        assert ledger is not None
        if self.scene.is_over():
            assert ledger.is_over
            return
        assert ledger.operation_state is R
        assert not ledger.aborted
        assert {f.call_id for f in ledger.stack} == set().union(*(a.held for a in alive))


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(
    max_examples=300,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@pytest.mark.deep
def test_many_more_interleavings() -> None:
    run_state_machine_as_test(
        Interleavings,
        settings=settings(max_examples=3000, stateful_step_count=80, deadline=None),
    )
