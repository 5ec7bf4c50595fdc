"""Positions of nodes in a drawing: in layers, by the longest path to each."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Final, TypeAlias

from perdure.core.graph.survey import NumberedEdge, Survey

Point: TypeAlias = tuple[float, float]
_Spot: TypeAlias = tuple[str, int]
"""A node, or one of the bends of a long edge."""

_LAYER: Final = 92
_GAP: Final = 28
_MARGIN: Final = 24
_BEND: Final = 16
_MOST_BENDS: Final = 5_000
_SWEEPS: Final = 4


class GraphLayout:
    """`centre` is the middle of each box; edges that skip layers bend around the boxes between."""

    box_height: Final = 40

    def __init__(self, survey: Survey, widths: Mapping[str, float]) -> None:
        self.widths = widths
        self._ranks = _ranks(survey)
        self._bends: dict[int, list[_Spot]] = {}
        self._layers: list[list[_Spot]] = [
            [] for _ in range(max(self._ranks.values(), default=0) + 1)
        ]
        for name in survey.names:
            self._layers[self._ranks[name]].append((name, -1))
        self._before: dict[_Spot, list[_Spot]] = {}
        self._after: dict[_Spot, list[_Spot]] = {}
        self._bend(survey)
        for sweep in range(_SWEEPS):
            self._sort(downwards=sweep % 2 == 0)
        self._spots = self._stand()
        self.centre = {name: self._spots[name, -1] for name in survey.names}

    def _bend(self, survey: Survey) -> None:
        left = _MOST_BENDS
        for number, edge in survey.edges:
            ranks = range(self._ranks[edge.source] + 1, self._ranks[edge.target])
            spots = [(f"edge {number}", rank) for rank in ranks] if len(ranks) <= left else []
            left -= len(spots)
            for spot in spots:
                self._layers[spot[1]].append(spot)
            self._bends[number] = spots
            way = [(edge.source, -1), *spots, (edge.target, -1)]
            for one, other in pairwise(way):
                self._after.setdefault(one, []).append(other)
                self._before.setdefault(other, []).append(one)

    def _sort(self, *, downwards: bool) -> None:
        """Sort each layer by the average position of its neighbours in the layer before."""
        others = self._before if downwards else self._after
        layers = self._layers if downwards else list(reversed(self._layers))
        places: dict[_Spot, float] = {}
        for layer in layers:
            for index, spot in enumerate(layer):
                known = [places[each] for each in others.get(spot, ()) if each in places]
                places[spot] = sum(known) / len(known) if known else float(index)
            layer.sort(key=places.__getitem__)
            places.update((spot, float(index)) for index, spot in enumerate(layer))

    def _stand(self) -> dict[_Spot, Point]:
        lengths = [sum(self._width(spot) + _GAP for spot in layer) for layer in self._layers]
        self.width = round(max(lengths, default=0) + 2 * _MARGIN)
        self.height = round(len(self._layers) * _LAYER + 2 * _MARGIN - _LAYER + self.box_height)
        spots: dict[_Spot, Point] = {}
        for rank, (layer, length) in enumerate(zip(self._layers, lengths, strict=True)):
            x = (self.width - length + _GAP) / 2
            for spot in layer:
                width = self._width(spot)
                spots[spot] = (x + width / 2, _MARGIN + self.box_height / 2 + rank * _LAYER)
                x += width + _GAP
        return spots

    def _width(self, spot: _Spot) -> float:
        return self.widths[spot[0]] if spot[1] < 0 else _BEND

    def path(self, numbered: NumberedEdge) -> list[Point]:
        """The points of an edge, from the border of its source to the border of its target."""
        number, edge = numbered
        (x, y), (to_x, to_y) = self.centre[edge.source], self.centre[edge.target]
        half = self.box_height / 2
        if to_y <= y:
            return self.back(edge.source, edge.target)
        bends = [self._spots[spot] for spot in self._bends[number]]
        return [(x, y + half), *bends, (to_x, to_y - half)]

    def back(self, source: str, target: str) -> list[Point]:
        """The points of an edge upwards: from side to side."""
        (x, y), (to_x, to_y) = self.centre[source], self.centre[target]
        side = x + self.widths[source] / 2
        return [(side, y), (to_x + self.widths[target] / 2, to_y)]


def _ranks(survey: Survey) -> dict[str, int]:
    back = set(survey.returning)
    waiting = dict.fromkeys(survey.names, 0)
    for numbered in survey.edges:
        if numbered not in back:
            waiting[numbered.edge.target] += 1
    ranks = dict.fromkeys(survey.names, 0)
    ready = [name for name, count in waiting.items() if not count]
    for name in ready:  # grows
        for numbered in survey.outgoing[name]:
            if numbered in back:
                continue
            target = numbered.edge.target
            ranks[target] = max(ranks[target], ranks[name] + 1)
            waiting[target] -= 1
            if not waiting[target]:
                ready.append(target)
    return ranks
