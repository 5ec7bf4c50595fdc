"""Which page is made by what."""

from collections.abc import Callable, Mapping
from pathlib import Path

from tools.reference.api import api_page, operations_page, testing_page
from tools.reference.contracts import cli_page, errors_page, events_page, limits_page, settings_page
from tools.reference.schema import schema_page

FOLDER = Path(__file__).parents[2] / "docs" / "reference"

PAGES: Mapping[str, Callable[[], str]] = {
    "api.md": api_page,
    "api-operations.md": operations_page,
    "api-testing.md": testing_page,
    "cli.md": cli_page,
    "errors.md": errors_page,
    "events.md": events_page,
    "limits.md": limits_page,
    "schema.md": schema_page,
    "settings.md": settings_page,
}
