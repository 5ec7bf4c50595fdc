"""`python -m tools.reference` writes the pages."""

from tools.reference.pages import FOLDER, PAGES


def write_pages() -> None:
    for name, make in PAGES.items():
        (FOLDER / name).write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    write_pages()
