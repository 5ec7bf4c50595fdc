"""Graphs of a user's, for the commands of `perdure graph`."""

from perdure import GraphProgram
from perdure.core.graph import model as m
from perdure.core.graph.model import Edge, Graph

model = Graph(
    "coded",
    (m.TriggerNode(name="start"), m.OutputNode(name="out", value="1")),
    (Edge("start", "out"),),
    "1",
    {},
)
program = GraphProgram[..., int](model, is_registered=False)
wrong = Graph(
    "wrong",
    (m.TriggerNode(name="start"), m.OutputNode(name="out", value="x")),
    (Edge("start", "out"),),
    input={},
)
a_number = 7
