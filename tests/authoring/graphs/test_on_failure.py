"""How an activity fails: `on_failure` of a worker, in YAML and in the builder."""

import pytest

from perdure import GraphBuilder, task
from perdure.authoring.graphs.yaml import load_graph
from perdure.core.errors import GraphInvalid
from perdure.core.graph import model as m

TEXT = """
graph: failing
activities:
  start: trigger
  pay: {worker: on_failure.pay, on_failure: WORD}
transitions:
  - start -> pay
"""


@task(name="on_failure.pay")
async def pay() -> None: ...


def _on_failure(graph: m.Graph) -> str | None:
    (node,) = (node for node in graph.nodes if isinstance(node, m.WorkerNode))
    return node.on_failure


@pytest.mark.parametrize("word", ["park", "fail"])
def test_yaml_says_how_an_activity_fails(word: str) -> None:
    assert _on_failure(load_graph(TEXT.replace("WORD", word))) == word


def test_other_words_are_refused() -> None:
    with pytest.raises(GraphInvalid, match=r"pay\.on_failure: 'wait'; use 'fail' or 'park'"):
        load_graph(TEXT.replace("WORD", "wait"))


def test_builder_says_how_an_activity_fails() -> None:
    builder = GraphBuilder("built_failing")
    builder.worker("pay", pay, on_failure="park")
    assert _on_failure(builder.build()) == "park"
