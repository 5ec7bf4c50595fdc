"""A run receives the signals of one sender in the order in which they were sent."""

from perdure import Engine, GraphProgram, Signal, task, workflow
from perdure.core.graph import model as m

COUNT = 30
number = Signal("number", int)


@task
async def take_your_time() -> None:
    """A step before the first receive."""


@workflow
async def hear_numbers(count: int) -> list[int]:
    await take_your_time()
    return [await number.receive() for _ in range(count)]


async def test_signals_to_topic_and_key_are_heard_in_their_order(engine: Engine) -> None:
    program = GraphProgram(
        m.Graph(
            "hearing_numbers",
            (
                m.TriggerNode(name="start"),
                m.HookNode(name="heard", topic="number", key="k", pending=True),
                m.AssignNode(name="keep", set={}, job={"all": "job.get('all', []) + [heard]"}),
                m.OutputNode(name="out", value="job.all"),
            ),
            (
                m.Edge("start", "heard"),
                m.Edge("heard", "keep", on="pending"),
                m.Edge("heard", "out"),
            ),
            input={"k": m.FieldType("str")},
        )
    )
    for value in range(COUNT // 2):
        await engine.send("number", "k", value, code=202)
    run = await engine.start(program(k="k"))
    for value in range(COUNT // 2, COUNT):
        await engine.send("number", "k", value, code=202)
    await engine.send("number", "k")
    assert await run.result(60) == list(range(COUNT))


async def test_signals_of_one_transaction_are_heard_in_their_order(engine: Engine) -> None:
    async with engine.transaction():
        run = await engine.start(hear_numbers(COUNT))
        for value in range(COUNT):
            await run.signal(number, value)
    assert await run.result(60) == list(range(COUNT))
