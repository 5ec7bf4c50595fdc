"""Opens a store behind pgbouncer, if that is installed."""

import pytest

from perdure import Engine, workflow
from perdure.core.errors import StoreUnavailable
from tests.client.engines import opened
from tests.pgbouncer import PGBOUNCER, pooled

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.skipif(PGBOUNCER is None, reason="pgbouncer is not installed"),
]


@workflow(name="poolers.brief")
async def brief(number: int) -> int:
    return number


async def test_an_engine_works_behind_a_pooler_that_gives_each_connection_a_session(
    fresh_postgres: str,
) -> None:
    with pooled(fresh_postgres, "session") as url:
        async with opened(url) as engine:
            assert await (await engine.start(brief(1), key="one")).result(60) == 1


async def test_a_pooler_that_loses_prepared_statements_is_refused_with_a_remedy(
    fresh_postgres: str,
) -> None:
    with pooled(fresh_postgres, "transaction") as url:
        for _ in ("first", "again, with what the first left in the sessions"):
            with pytest.raises(StoreUnavailable, match="pool_mode=session"):
                await Engine(url).open()
