from collections.abc import Callable
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.ids import (
    Guid,
    RunId,
    StepId,
    new_run_id,
    parse_run_id,
    require_guid_of,
)
from perdure.core.replay.identity import (
    cancel_guid,
    child_run_id,
    idempotency_text,
    next_run_id,
    parent_address,
    parse_parent,
    result_guid,
    retry_guid,
    signal_guid,
    timer_guid,
)

RUN = new_run_id(1_700_000_000_000, bytes(10))
STEP = StepId("root.3")

runs = st.builds(new_run_id, st.integers(0, (1 << 48) - 1), st.binary(min_size=10, max_size=10))
steps = st.lists(st.integers(0, 999), max_size=5).map(
    lambda path: StepId(".".join(["root", *map(str, path)]))
)
numbers = st.integers(1, 1 << 31)

MAKERS: dict[str, Callable[[RunId], Guid]] = {
    "timer": lambda run: timer_guid(run, STEP),
    "retry": lambda run: retry_guid(run, STEP, 1),
    "result": lambda run: result_guid(run, STEP, 1),
    "signal": lambda run: signal_guid(run, "approval", "me"),
    "cancel": cancel_guid,
}


@pytest.mark.parametrize("kind", MAKERS)
def test_a_guid_is_the_same_each_time_it_is_derived(kind: str) -> None:
    assert MAKERS[kind](RUN) == MAKERS[kind](RUN)


@pytest.mark.parametrize("kind", MAKERS)
@given(run=runs)
def test_a_guid_belongs_to_the_run_that_it_is_sent_to(kind: str, run: RunId) -> None:
    guid = MAKERS[kind](run)
    assert require_guid_of(guid, run) == guid


def test_messages_of_different_kinds_have_different_guids() -> None:
    assert len({make(RUN) for make in MAKERS.values()}) == len(MAKERS)


@given(steps, steps)
def test_timers_differ_exactly_if_their_steps_do(one: StepId, other: StepId) -> None:
    assert (timer_guid(RUN, one) == timer_guid(RUN, other)) == (one == other)


@pytest.mark.parametrize("make", [retry_guid, result_guid])
@given(one=st.tuples(steps, numbers), other=st.tuples(steps, numbers))
def test_attempts_differ_exactly_if_their_steps_or_numbers_do(
    make: Callable[[RunId, StepId, int], Guid],
    one: tuple[StepId, int],
    other: tuple[StepId, int],
) -> None:
    assert (make(RUN, *one) == make(RUN, *other)) == (one == other)


@given(st.tuples(st.text(), st.text()), st.tuples(st.text(), st.text()))
def test_signals_differ_exactly_if_their_names_or_senders_do(
    one: tuple[str, str], other: tuple[str, str]
) -> None:
    assert (signal_guid(RUN, *one) == signal_guid(RUN, *other)) == (one == other)


@given(runs, steps)
def test_a_child_id_is_the_same_each_time_it_is_derived(run: RunId, step: StepId) -> None:
    child = child_run_id(run, step)
    assert parse_run_id(child) == child_run_id(run, step)


@given(runs, steps)
def test_a_child_sorts_beside_its_parent(run: RunId, step: StepId) -> None:
    time_hex = slice(0, len("r_") + 12)
    assert child_run_id(run, step)[time_hex] == run[time_hex]


@given(st.tuples(runs, steps), st.tuples(runs, steps))
def test_children_differ_exactly_if_their_parents_or_steps_do(
    one: tuple[RunId, StepId], other: tuple[RunId, StepId]
) -> None:
    assert (child_run_id(*one) == child_run_id(*other)) == (one == other)


@given(runs, steps)
def test_a_child_is_not_its_parent(run: RunId, step: StepId) -> None:
    assert child_run_id(run, step) != run


@given(runs, steps, st.integers(1, 99))
def test_a_parents_address_parses_back_to_its_parts(run: RunId, step: StepId, attempt: int) -> None:
    assert parse_parent(parent_address(run, step, attempt)) == (run, step, attempt)


@given(runs, steps, st.integers(2, 99))
def test_each_attempt_of_a_child_is_another_run(run: RunId, step: StepId, attempt: int) -> None:
    assert child_run_id(run, step, attempt) != child_run_id(run, step)


@given(st.tuples(runs, steps), st.tuples(runs, steps))
def test_idempotency_keys_differ_exactly_if_their_runs_or_steps_do(
    one: tuple[RunId, StepId], other: tuple[RunId, StepId]
) -> None:
    assert (idempotency_text(*one) == idempotency_text(*other)) == (one == other)


STORED = {
    "timer": "f90ff0d85b23e67907339c4404f5a35b",
    "retry": "04d65e435bc54051831f085129cf647d",
    "result": "680972f6d623fc55b8540b86d71e3d3e",
    "signal": "03f525615de2f7e965e8e69290ea7315",
    "cancel": "fbccdc1e52f67fd4808b5e1bb3f421ca",
}


@pytest.mark.parametrize("kind", MAKERS)
def test_a_guid_never_changes_because_messages_under_way_carry_it(kind: str) -> None:
    assert MAKERS[kind](RUN) == f"m_{RUN[2:]}_{STORED[kind]}"


def test_a_childs_id_never_changes_because_its_parent_derives_it() -> None:
    assert child_run_id(RUN, STEP) == "r_018bcfe568007c579c51bbc5dc4a07d7"


def test_an_idempotency_key_never_changes_because_services_remember_it() -> None:
    assert idempotency_text(RUN, STEP) == sha256(f"{RUN}|{STEP}|1".encode()).hexdigest()


@given(st.integers(0, 1 << 47), st.binary(min_size=10, max_size=10))
def test_a_run_that_continues_another_has_a_derived_id_that_sorts_after_it(
    at_ms: int, entropy: bytes
) -> None:
    run = new_run_id(at_ms, entropy)
    chain = [run]
    for _ in range(20):
        chain.append(next_run_id(chain[-1]))
    assert chain == sorted(set(chain))
    assert [parse_run_id(each) for each in chain] == chain
    assert chain[1] == next_run_id(run)
    assert child_run_id(run, STEP) not in chain
