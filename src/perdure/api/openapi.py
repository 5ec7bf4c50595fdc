"""The OpenAPI document, made from the table of routes and the types of their parameters, bodies and answers."""

import re
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.metadata import version
from inspect import getdoc
from types import UnionType
from typing import Any, Final, get_args, get_origin, get_type_hints

import msgspec

from perdure.api.endpoint import Endpoint
from perdure.api.exchange import EVENT_STREAM
from perdure.api.problems import Problem

_REF: Final = "#/components/schemas/{name}"
_PART: Final = re.compile(r"{(\w+)}")

_HEADERS: Final = {
    "Idempotency-Key": "The start key: one run per scope, program and key.",
    "If-Match": "The ETag of the run that the request was decided on.",
    "If-None-Match": "The ETag that the caller has: 304 if it is the newest.",
    "Last-Event-ID": "The id of the last event that was received.",
    "Prefer": "`wait=30` waits so many seconds for the outcome.",
}

_EXAMPLES: Final = {
    "run": "r_01a1f6013cc176cca01838436b1e6aa2",
    "step": "root.0",
    "program": "checkout",
    "schedule": "nightly",
    "topic": "approval",
    "key": "order-42",
    "name": "tokens",
    "act": "c323e3cb6f2088e8bec6ba596526bcbe",
    "bulk": "47dc766e6c69e2d664fae2e2e89b6dad",
    "token": "5f1d7a84c0b2e936",
    "operation": "nightly-import",
}


def document(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """The OpenAPI 3.1 document of these endpoints."""
    named = _types(endpoints)
    schemas, components = msgspec.json.schema_components(named, ref_template=_REF)
    by_type = {id(each): schema for each, schema in zip(named, schemas, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, by_type)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Perdure",
            "version": version("perdure"),
            "description": "Durable execution over HTTP. Errors are `application/problem+json` with a stable code.",
        },
        "servers": [{"url": "."}],
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _types(endpoints: Iterable[Endpoint]) -> list[Any]:
    """All types that the document names, each once."""
    found: dict[int, Any] = {id(Problem): Problem}
    for endpoint in endpoints:
        for wanted in (endpoint.body, *_replies(endpoint), *_fields(endpoint).values()):
            if wanted is not None:
                found[id(wanted)] = wanted
    return list(found.values())


def _replies(endpoint: Endpoint) -> tuple[Any, ...]:
    """The types of the answer: an endpoint may have several."""
    if endpoint.reply is None:
        return ()
    is_union = isinstance(endpoint.reply, UnionType)
    return get_args(endpoint.reply) if is_union else (endpoint.reply,)


def _fields(endpoint: Endpoint) -> dict[str, Any]:
    """The types of the query's parameters. Those of one class are the same objects each time."""
    return {} if endpoint.query is None else _hints(endpoint.query)


@cache
def _hints(query: type[msgspec.Struct]) -> dict[str, Any]:
    return {name: _item(hint) for name, hint in get_type_hints(query).items()}


def _item(hint: Any) -> Any:
    """A parameter's type: without `None`, which no query string can hold."""
    kinds = [each for each in get_args(hint) if each is not type(None)]
    is_optional = len(kinds) == 1 and get_origin(hint) not in (list, dict)
    return kinds[0] if is_optional else hint


def _operation(endpoint: Endpoint, schemas: dict[int, Any]) -> dict[str, Any]:
    described = endpoint.summary
    if endpoint.command:
        described += f" The command `{endpoint.command}` does the same."
    operation: dict[str, Any] = {
        "operationId": _id_of(endpoint),
        "summary": endpoint.summary,
        "description": described,
        "tags": [_tag_of(endpoint.path)],
        "parameters": [*_parameters(endpoint, schemas)],
        "responses": _responses(endpoint, schemas),
    }
    if endpoint.permission is None:
        operation["security"] = []
    else:
        operation["x-permission"] = str(endpoint.permission)
        operation["x-store-wide"] = endpoint.store_wide
    if endpoint.body is not None:
        content: dict[str, Any] = {"schema": schemas[id(endpoint.body)]}
        if endpoint.example is not None:
            content["example"] = endpoint.example
        operation["requestBody"] = {
            "required": bool(_required(endpoint.body)),
            "content": {"application/json": content},
        }
    return operation


def _required(body: type[msgspec.Struct]) -> list[str]:
    return [field.name for field in msgspec.structs.fields(body) if field.required]


def _parameters(endpoint: Endpoint, schemas: dict[int, Any]) -> Iterable[dict[str, Any]]:
    for name in _PART.findall(endpoint.path):
        yield {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string", "minLength": 1},
            "example": _EXAMPLES.get(name, name),
        }
    if endpoint.query is not None:
        defaults = {field.name: field for field in msgspec.structs.fields(endpoint.query)}
        for name, hint in _fields(endpoint).items():
            if name == "tags":  # `tag.NAME=VALUE`: OpenAPI has no way to say so
                continue
            yield {
                "name": name,
                "in": "query",
                "required": defaults[name].required,
                "schema": schemas[id(hint)],
                **({"style": "form", "explode": False} if get_origin(hint) is list else {}),
            }
    for name in endpoint.headers:
        yield {
            "name": name,
            "in": "header",
            "required": False,
            "description": _HEADERS[name],
            "schema": {"type": "string"},
        }


def _responses(endpoint: Endpoint, schemas: dict[int, Any]) -> dict[str, Any]:
    problem = {
        "description": "The request was refused, or failed: see its code and remedy.",
        "content": {"application/problem+json": {"schema": schemas[id(Problem)]}},
    }
    success: dict[str, Any] = {"description": _answer_of(endpoint)}
    if endpoint.status != 204 and endpoint.media_type != "application/json":
        success["content"] = {endpoint.media_type: {"schema": {"type": "string"}}}
    elif endpoint.status != 204:
        found = [schemas[id(each)] for each in _replies(endpoint)]
        schema = found[0] if len(found) == 1 else {"anyOf": found}
        success["content"] = {"application/json": {"schema": schema}}
        if endpoint.streams:
            success["content"][EVENT_STREAM] = {"schema": {"type": "string"}}
    responses = {str(endpoint.status): success}
    for status in _OTHER_SUCCESSES.get(endpoint.status, ()):
        responses[str(status)] = success
    if "If-None-Match" in endpoint.headers:
        responses["304"] = {"description": "The caller has the newest version."}
    return {**responses, "default": problem}


_OTHER_SUCCESSES: Final = {200: (202,), 201: (200, 202), 202: (200,)}
"""Successes of one kind of route: an outcome that is there already, or that is not there yet."""


def _answer_of(endpoint: Endpoint) -> str:
    reply = endpoint.reply
    text = getdoc(reply) if isinstance(reply, type) and issubclass(reply, msgspec.Struct) else None
    return (text or endpoint.summary).partition("\n\n")[0].replace("\n", " ")


def _id_of(endpoint: Endpoint) -> str:
    return endpoint.handler.__name__


def _tag_of(path: str) -> str:
    parts = path.split("/")
    return parts[2] if len(parts) > 2 and parts[1] == "v1" else "server"
