"""Tags: names and values that the user gives a run, to find it by."""

from collections.abc import Mapping
from typing import Final

from perdure.authoring.texts import require_user_text
from perdure.core.errors import InputError
from perdure.core.graph.identity import key_text

TagValue = str | int | float | bool

MAX_TAGS: Final = 32
"""Tags of a run: each is a row that the start of the run and of each of its children writes."""


def tag_texts(tags: object) -> dict[str, str]:
    """Names and values as they are stored. A value is stored as text: True as `true`, 1.0 as `1`."""
    if not isinstance(tags, Mapping):
        raise InputError(f"tags are {tags!r:.80}", 'pass a dict, such as {"customer": "acme"}')
    texts: dict[str, str] = {}
    for name, value in tags.items():
        require_user_text("the name of a tag", name)
        if not isinstance(value, str | int | float):
            raise InputError(
                f"tag {name!r} has the value {value!r:.80}", "use a text, a number or a bool"
            )
        texts[name] = key_text(value)
    return require_tag_count(texts)


def require_tag_count(tags: dict[str, str]) -> dict[str, str]:
    """Refuse more tags than a run may have."""
    if len(tags) > MAX_TAGS:
        raise InputError(
            f"a run with {len(tags)} tags", f"use at most {MAX_TAGS}, by which you find runs"
        )
    return tags
