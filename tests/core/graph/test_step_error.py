"""Errors in a graph: the names that match them, and how they are bound and raised again."""

import pytest

from perdure.core.graph.step_error import (
    StepError,
    bound_step_error,
    full_name,
    named_step_error,
    step_error_from,
)


class Lost(LookupError):
    """An error of the user's own."""


class Remembered(Exception):
    """An error that could not be rebuilt: it has the name of its original type."""

    def __init__(self) -> None:
        super().__init__("whatever")
        self.type_name = "app:Gone"
        self.message = "it was there"


OWN = f"{__name__}:Lost"


def test_an_error_matches_its_type_and_all_base_types() -> None:
    error = step_error_from(Lost("x"))
    assert error.type_name == OWN
    assert error.message == "x"
    assert error.is_one_of((OWN,))
    assert error.is_one_of(("LookupError",))
    assert error.is_one_of(("ValueError", "builtins:Exception"))
    assert not error.is_one_of(("ValueError", "app:Lost"))


def test_no_names_mean_any_error() -> None:
    assert step_error_from(ValueError()).is_one_of(())


def test_a_stored_error_of_an_unknown_type_keeps_its_name() -> None:
    error = step_error_from(Remembered())
    assert (error.type_name, error.message) == ("app:Gone", "it was there")
    assert error.is_one_of(("app:Gone",))


@pytest.mark.parametrize(
    ("error", "bases", "fits"),
    [
        ("KeyError", (), "LookupError"),
        ("builtins:KeyError", (), "KeyError"),
        ("app:Broken", (), "Exception"),
        ("app:Broken", ("app:Base",), "app:Base"),
    ],
)
def test_an_error_known_by_name_has_its_base_types(
    error: str, bases: tuple[str, ...], fits: str
) -> None:
    named = named_step_error(error, "m", bases)
    assert named.is_one_of((fits,))
    assert named.is_one_of((error,))
    assert not named.is_one_of(("OSError",))


def test_a_builtin_that_is_no_error_adds_no_names() -> None:
    assert named_step_error("print", "m").names == {"builtins:print", "builtins:Exception"}


def test_a_bound_error_is_raised_again_as_it_was() -> None:
    error = step_error_from(Lost("x"))
    assert error.value == {"type": "Lost", "message": "x"}
    assert bound_step_error(error.bound) == StepError(OWN, "x", error.names)


@pytest.mark.parametrize("value", [None, 3, "text", {}, {"type": "KeyError"}, {"of": 7}])
def test_a_value_that_is_no_bound_error_gives_none(value: object) -> None:
    assert bound_step_error(value) is None


def test_names_without_a_module_are_those_of_python() -> None:
    assert full_name("KeyError") == "builtins:KeyError"
    assert full_name("app:Broken") == "app:Broken"
