"""The shape of a graph: order, ancestors, dominators, and where paths part."""

import pytest

from perdure.core.errors import InputError
from perdure.core.graph.shape import Shape

# 0 -> 1 -> 3 -> 4, 0 -> 2 -> 3, and 2 -> 5 on its own.
DIAMOND = Shape(6, [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4), (2, 5)])


def test_order_puts_each_vertex_behind_its_predecessors() -> None:
    order = Shape(4, [(3, 2), (2, 1), (1, 0)]).order
    assert order == [3, 2, 1, 0]


def test_edges_that_form_a_cycle_are_refused() -> None:
    with pytest.raises(InputError, match="form a cycle"):
        Shape(3, [(0, 1), (1, 2), (2, 1)])


def test_ancestors_and_descendants() -> None:
    assert DIAMOND.ancestors(3) == {0, 1, 2}
    assert DIAMOND.ancestors(0) == set()
    assert DIAMOND.descendants(2) == {3, 4, 5}
    assert DIAMOND.descendants(4) == set()


def test_dominators_are_the_vertices_that_every_path_passes() -> None:
    assert DIAMOND.dominates(0, 4)
    assert DIAMOND.dominates(3, 4)
    assert DIAMOND.dominates(4, 4)
    assert not DIAMOND.dominates(1, 3)
    assert DIAMOND.dominates(2, 5)


def test_an_edge_that_bypasses_a_vertex_ends_its_dominance() -> None:
    past = Shape(3, [(0, 1), (1, 2), (0, 2)])
    assert not past.dominates(1, 2)
    assert past.parting(2) == 0


def test_paths_part_at_the_last_vertex_that_all_pass() -> None:
    # 0 -> 1, which parts to 2 and 3, which join in 4.
    shape = Shape(5, [(0, 1), (1, 2), (1, 3), (2, 4), (3, 4)])
    assert shape.parting(4) == 1
    assert shape.since_parting(2, 4) == {2}
    assert shape.since_parting(3, 4) == {3}


def test_vertices_since_the_parting_include_all_paths_through_the_source() -> None:
    # By 4 lead both 2 and 3; 5 joins 4 and 1.
    shape = Shape(6, [(0, 1), (0, 2), (0, 3), (2, 4), (3, 4), (4, 5), (1, 5)])
    assert shape.since_parting(4, 5) == {2, 3, 4}
    assert shape.since_parting(1, 5) == {1}
