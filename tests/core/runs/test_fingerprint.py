"""Fingerprints: the same cause has the same fingerprint, whatever ids, numbers and addresses the text has."""

import pytest

from perdure.core.codec import JsonCodec
from perdure.core.ids import StepId
from perdure.core.journal import events as e
from perdure.core.runs.fingerprint import ErrorText, error_text, normalized, root_cause

CODEC = JsonCodec()


def _stored(type_name: str, message: str) -> bytes:
    return CODEC.encode({"type": type_name, "message": message, "traceback": "..."})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("order 17 not found", "order 4711 not found"),
        (
            "run r_0190f8c0d5b37cc2a5e5f8a1b2c3d4e5 is gone",
            "run r_0190f8c0d5b37cc2a5e5f8a1b2c3ffff is gone",
        ),
        ("<Order object at 0x7f12ab>", "<Order object at 0x10cafe>"),
        ("no 0190f8c0-d5b3-7cc2-a5e5-f8a1b2c3d4e5", "no 11111111-d5b3-7cc2-a5e5-f8a1b2c3d4e5"),
        ("10.0.0.1:5432 refused", "10.0.0.27:5433 refused"),
        ("digest 3fa9c01e77bd0a12 differs", "digest 00a9c01e77bd0a12 differs"),
        ("two  words", "two\nwords"),
    ],
)
def test_errors_that_differ_in_ids_and_numbers_have_one_fingerprint(one: str, other: str) -> None:
    first, second = ErrorText("app:Lost", one), ErrorText("app:Lost", other)
    assert first.fingerprint == second.fingerprint


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("app:Lost", "order lost"), ("app:Lost", "invoice lost")),
        (("app:Lost", "order lost"), ("app:Gone", "order lost")),
    ],
)
def test_errors_of_another_type_or_text_have_another_fingerprint(
    one: tuple[str, str], other: tuple[str, str]
) -> None:
    assert ErrorText(*one).fingerprint != ErrorText(*other).fingerprint


def test_words_of_hexadecimal_letters_stay() -> None:
    assert normalized("facade defaced deadbeefdead") == "facade defaced deadbeefdead"


@pytest.mark.parametrize(
    ("type_name", "code"),
    [
        ("builtins:ValueError", "ValueError"),
        ("app.orders:CardDeclined", "app.orders.CardDeclined"),
        ("perdure.core.errors.outcomes:StepInDoubt", "step-in-doubt"),
    ],
)
def test_code_names_the_class_or_is_perdures_own(type_name: str, code: str) -> None:
    assert ErrorText(type_name).code == code


def test_errors_that_are_erased_or_unreadable_have_no_text() -> None:
    assert error_text(CODEC, None) is None
    assert error_text(CODEC, b"\xff") is None


def _failed(step: str, message: str) -> e.InvokeCompleted:
    return e.InvokeCompleted(StepId(step), 1, False, payload=_stored("app:Lost", message))


def test_root_cause_is_the_first_step_with_the_error_of_the_run() -> None:
    end = e.ExecutionFailed(payload=_stored("app:Lost", "card declined"), released=1)
    events = [_failed("root.0", "no stock"), _failed("root.1", "card declined"), end]
    found = root_cause(events, CODEC)
    assert found == (StepId("root.1"), ErrorText("app:Lost", "card declined"))


def test_error_of_the_program_itself_has_no_step() -> None:
    end = e.ExecutionFailed(payload=_stored("builtins:KeyError", "'x'"), released=1)
    found = root_cause([_failed("root.0", "no stock"), end], CODEC)
    assert found == (None, ErrorText("builtins:KeyError", "'x'"))


def test_run_that_has_not_failed_has_no_root_cause() -> None:
    assert root_cause([_failed("root.0", "no stock")], CODEC) is None
