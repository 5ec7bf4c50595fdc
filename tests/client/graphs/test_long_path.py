"""A path as long as the ids of its steps may be."""

from perdure import Engine, GraphBuilder
from perdure.authoring.graphs.program import GraphProgram
from perdure.testing import assert_sound
from perdure.testing.probe import Probe

LONGEST = 480

b = GraphBuilder("long_path", input={})
for number in range(LONGEST):
    b.hook(f"hook_with_a_name_{number}")
b.output("done", "'there'")
b.chain(*(f"hook_with_a_name_{number}" for number in range(LONGEST)), "done")
long_path: GraphProgram[..., str] = GraphProgram(b.build())


async def test_a_path_of_480_activities_runs(shared_url: str) -> None:
    async with Engine(shared_url) as engine:
        run = await engine.start(long_path())
        assert await run.result(timeout=120) == "there"
        await assert_sound(Probe(engine).store)
