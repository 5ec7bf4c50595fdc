import pytest

from perdure.core.graph.inputs import input_faults, is_of
from perdure.core.graph.model import FieldType

FIELDS = {
    "order": FieldType("str"),
    "count": FieldType("int"),
    "note": FieldType("str", required=False),
    "rate": FieldType("float", required=False, default=1.5),
}


@pytest.mark.parametrize(
    ("given", "faults"),
    [
        ({"order": "a", "count": 1}, []),
        ({"order": "a", "count": 1, "note": None, "rate": 2}, []),
        ({}, ["'order' is missing", "'count' is missing"]),
        ({"order": 1, "count": 1.0}, ["'order' is 1, and has to be", "'count' is 1.0, and has"]),
        ({"order": "a", "count": 1, "rate": None}, ["'rate' is None"]),
        (
            {"order": "a", "count": 1, "cuont": 2},
            ["there is no field 'cuont': did you mean 'count'?"],
        ),
        ({"order": "a", "count": 1, "zzz": 2}, ["'zzz': the fields are order, count, note, rate"]),
    ],
)
def test_all_faults_of_an_input_are_reported(given: dict[str, object], faults: list[str]) -> None:
    found = input_faults(FIELDS, given)
    assert len(found) == len(faults)
    for reported, expected in zip(found, faults, strict=True):
        assert expected in reported


def test_a_graph_without_fields_accepts_no_input() -> None:
    assert input_faults({}, {}) == []
    assert input_faults({}, {"x": 1}) == ["there is no field 'x': there are no fields"]


VALUES = {"str": "a", "int": 1, "float": 1.5, "bool": True, "list": [], "dict": {}, "none": None}


@pytest.mark.parametrize("kind", VALUES)
def test_a_value_matches_its_own_type_only(kind: str) -> None:
    fits = {other for other, value in VALUES.items() if is_of(FieldType(kind), value)}  # type: ignore[arg-type]
    assert fits == ({"int", "float"} if kind == "float" else {kind})
    assert is_of(FieldType("any"), VALUES[kind])
