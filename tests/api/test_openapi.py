from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from perdure.api.openapi import document
from perdure.api.routes import endpoints
from tests.api import programs
from tests.api.servers import serving

DOCUMENT = document(endpoints())
OPERATIONS = [(method, path) for path, group in DOCUMENT["paths"].items() for method in group]
CHECKS = [
    not_a_server_error,
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    assert programs.decide.name == "api.decide"
    path: Path = tmp_path_factory.mktemp("openapi")
    with serving(f"sqlite:///{path}/api.db") as found:
        yield found


@pytest.fixture(scope="module")
def schema(address: str) -> Any:
    return schemathesis.openapi.from_url(f"{address}/openapi.json")


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_generated_requests_get_the_answers_that_the_document_says(
    schema: Any, address: str, method: str, path: str
) -> None:
    operation = schema[path][method.upper()]

    @settings(
        max_examples=4,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def ask(case: Any) -> None:
        case.call_and_validate(base_url=address, checks=CHECKS, timeout=60)

    ask()


async def test_the_document_is_served_and_names_every_route(address: str) -> None:
    async with httpx2.AsyncClient(base_url=address) as client:
        served = (await client.get("/openapi.json")).json()
    assert served == msgspec.json.decode(msgspec.json.encode(DOCUMENT))
    named = {(method.upper(), path) for method, path in OPERATIONS}
    assert named == {(each.method, each.path) for each in endpoints()}
    ids = [DOCUMENT["paths"][path][method]["operationId"] for method, path in OPERATIONS]
    assert len(ids) == len(set(ids))


def test_every_body_has_an_example_or_needs_none() -> None:
    for method, path in OPERATIONS:
        body = DOCUMENT["paths"][path][method].get("requestBody")
        if body is not None and body["required"] and path != "/v1/session":
            assert "example" in body["content"]["application/json"], path
