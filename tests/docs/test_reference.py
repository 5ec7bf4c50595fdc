import pytest

from perdure import __all__ as public
from tests.docs.markdown import anchors
from tools.reference.pages import FOLDER, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_a_committed_page_is_what_the_code_generates(name: str) -> None:
    written = (FOLDER / name).read_text(encoding="utf-8")
    assert written == PAGES[name](), f"docs/reference/{name} is out of date: run make docs"


def test_every_public_name_is_in_the_reference() -> None:
    api = anchors((FOLDER / "api.md").read_text())
    errors = (FOLDER / "errors.md").read_text()
    missing = [name for name in public if name.lower() not in api and f"`{name}`" not in errors]
    assert not missing
