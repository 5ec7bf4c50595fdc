"""A workflow that calls a graph, which calls a workflow: one engine, two kinds of programs.

    python examples/graph_and_workflow.py

Each is a run of its own, with its own journal. The caller waits for it without memory and gets what it returns; if the
caller is cancelled, so is what it waits for.
"""

import asyncio
import tempfile
from pathlib import Path

from perdure import Engine, GraphProgram, load_graph, task, workflow


@task
async def check(name: str, what: str) -> bool:
    return not (name == "Eve" and what == "references")


@workflow
async def interview(name: str, rounds: int) -> int:
    """Code suits what is mostly decisions."""
    marks = 0
    for number in range(rounds):
        marks += 1 if await check(name, f"round {number}") else 0
    return marks


SCREENING = """
graph: screening
input: {name: str}
activities:
  papers: {worker: check, input: {name: name, what: "'papers'"}}
  references: {worker: check, input: {name: name, what: "'references'"}}
  talk: {await: interview, input: {name: name, rounds: 3}, output: {marks: result}}
  verdict: {output: "{'hired': papers and references and marks == 3, 'marks': marks}"}
transitions:
  - {from: [papers, references, talk], to: verdict}
"""
screening = GraphProgram(load_graph(SCREENING))


@workflow
async def hire(names: list[str]) -> list[str]:
    """A graph is awaited like a workflow or a task."""
    hired = []
    for name in names:
        verdict = await screening(name=name)
        if verdict["hired"]:
            hired.append(name)
    return hired


async def main(url: str) -> None:
    async with Engine(url) as engine:
        run = await engine.start(hire(["Ada", "Eve"]))
        print("hired:", *await run.result(timeout=30))
        alone = await engine.start(screening(name="Eve"))
        print("alone:", await alone.result(timeout=30))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(f"sqlite:///{Path(folder, 'people.db')}"))
