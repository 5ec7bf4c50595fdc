"""JSON Schemas of annotations, for forms that people fill in."""

from typing import Any

import msgspec

from perdure.core.models import is_model
from perdure.core.text_types import is_text_type


def schema_text(of: Any, limit: int) -> str | None:
    """The JSON Schema of an annotation as JSON; `None` if it has none, or one of more than `limit` bytes."""
    try:
        found = msgspec.json.encode(msgspec.json.schema(of, schema_hook=_schema_of))
    except (TypeError, ValueError, RuntimeError, NameError):
        return None
    return found.decode() if len(found) <= limit else None


def _schema_of(cls: Any) -> dict[str, Any]:
    if is_text_type(cls):
        return {"type": "string"}
    if not is_model(cls):
        raise NotImplementedError
    schema: dict[str, Any] = cls.model_json_schema(by_alias=False)
    return schema
