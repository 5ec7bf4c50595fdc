from datetime import datetime
from typing import Any

import pytest

from perdure import Transaction, task
from perdure.authoring.graphs.arguments import argument_problems
from perdure.core.graph import model as m


@task
def pay_by_graph(
    order: str, amount: float, note: str | None = None, when: datetime | None = None
) -> None:
    del order, amount, note, when


@task
def take_anything_by_graph(first: int, **others: Any) -> None:
    del first, others


@task(transactional=True)
async def write_by_graph(tx: Transaction, row: list[int]) -> None:
    del tx, row


def said(name: str, given: dict[str, str]) -> list[str]:
    graph = m.Graph(
        "paying",
        (
            m.TriggerNode(name="start"),
            m.AssignNode(name="set", set={"rows": "[1]"}),
            m.WorkerNode(name="w", task=name, input=given),
        ),
        (m.Edge("start", "set"), m.Edge("set", "w")),
        input={"text": m.FieldType("str"), "whole": m.FieldType("int"), "any": m.FieldType()},
    )
    return [str(problem) for problem in argument_problems(graph)]


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("pay_by_graph", {"order": "text", "amount": "whole"}),
        ("pay_by_graph", {"order": "'x'", "amount": "3", "note": "None"}),
        ("pay_by_graph", {"order": "any", "amount": "any", "when": "'2024-01-01T00:00:00'"}),
        ("pay_by_graph", {"order": "text + 'x'", "amount": "whole / 2", "when": "text"}),
        ("take_anything_by_graph", {"first": "1", "second": "2"}),
        ("write_by_graph", {"row": "rows"}),
        ("a_task_that_lives_elsewhere", {"x": "1"}),
        ("pay_by_graph", {"order": "1 +", "amount": "3"}),
    ],
)
def test_arguments_that_fit_are_accepted(name: str, given: dict[str, str]) -> None:
    assert said(name, given) == []


def test_missing_and_unknown_arguments_are_reported() -> None:
    assert said("pay_by_graph", {"ordr": "text", "amount": "1", "colour": "1"}) == [
        "w.input: the argument 'order' of the task 'pay_by_graph' is missing; "
        "add 'order' to the input",
        "w.input.ordr: the task 'pay_by_graph' has no argument 'ordr'; did you mean 'order'?",
        "w.input.colour: the task 'pay_by_graph' has no argument 'colour'; "
        "it has order, amount, note, when",
    ]
    assert said("write_by_graph", {"tx": "1"})[0].startswith("w.input: the argument 'row'")


def test_literals_of_a_wrong_type_are_reported() -> None:
    assert said("pay_by_graph", {"order": "3", "amount": "'3'", "when": "'soon'"}) == [
        "w.input.order: 3 is no value for 'order', which is str; pass a value of that type",
        "w.input.amount: '3' is no value for 'amount', which is float; pass a value of that type",
        "w.input.when: 'soon' is no value for 'when', which is datetime.datetime | None; "
        "pass a value of that type",
    ]


def test_expressions_of_a_wrong_type_are_reported() -> None:
    assert said("pay_by_graph", {"order": "whole + 1", "amount": "text", "note": "rows"}) == [
        "w.input.order: whole + 1 is of type int, and 'order' is str; "
        "convert it, or pass another value",
        "w.input.amount: text is of type str, and 'amount' is float; "
        "convert it, or pass another value",
        "w.input.note: rows is of type list, and 'note' is str | None; "
        "convert it, or pass another value",
    ]


def test_task_with_unreadable_annotations_is_reported() -> None:
    @task(name="unreadable_by_graph")
    def unreadable(x: "NoSuchType") -> None:  # type: ignore[name-defined]  # noqa: F821
        del x

    assert said("unreadable_by_graph", {"x": "1"})[0].startswith("w.task: the annotation of")
