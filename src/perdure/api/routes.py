"""The table of all routes."""

from perdure.api.doors.routes import DOORS
from perdure.api.endpoint import Endpoint
from perdure.api.runs.routes import READING
from perdure.api.runs.writing_routes import WRITING
from perdure.api.storage.routes import STORAGE


def endpoints() -> tuple[Endpoint, ...]:
    """All endpoints. Of two paths that match one request, the first answers."""
    return (*READING, *WRITING, *STORAGE, *DOORS)
