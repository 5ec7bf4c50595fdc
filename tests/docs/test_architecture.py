"""The tour of the source stays short enough to be read at once, and names every room."""

import re

from tests.docs.markdown import ROOT, prose

TOUR = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
SOURCE = ROOT / "src" / "perdure"

WORDS = 1500


def test_the_tour_has_at_most_1500_words() -> None:
    assert len(prose(TOUR).split()) <= WORDS


def test_the_tour_names_every_layer() -> None:
    layers = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()}
    assert {layer for layer in layers if not re.search(rf"\b{layer}\b", TOUR)} == set()


def test_the_tour_says_where_to_start_for_ten_changes() -> None:
    _, start = TOUR.split("## Where to start\n")
    assert len(re.findall(r"^\| .* \| .*`", start, re.MULTILINE)) >= 10
