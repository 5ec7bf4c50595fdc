"""`perdure worker`: the command."""

import asyncio
import sys

from perdure import InputError, Settings
from perdure.authoring.definition import require_name
from perdure.cli.worker.logs import check_format, check_level
from perdure.cli.worker.policy import BAD_CONFIG, SupervisionPolicy
from perdure.cli.worker.process import WorkerConfig
from perdure.cli.worker.supervisor import Supervisor


def worker(
    target: str,
    /,
    *,
    processes: int = 1,
    queues: str | None = None,
    concurrency: int | None = None,
    log_level: str | None = None,
    log_format: str | None = None,
) -> int:
    """Run an engine in one or more processes and restart them if they fail.

    SIGTERM or Ctrl-C stops: running tasks may finish, and the runs are released. A second one kills the processes.
    SIGHUP restarts the processes one by one.

    Parameters
    ----------
    target
        module:name of a perdure.Engine that is not open, or of a function that returns one.
    processes
        The number of worker processes.
    queues
        The queues to serve, separated by commas. Default: those of the engine.
    concurrency
        Concurrent tasks per process, async and sync together. Default: the setting of the engine.
    log_level
        Lowest level to log to standard error: debug, info, warning, error or critical. Default: info, unless the
        program configures logging itself.
    log_format
        text, or json for one object per line. Default: text, unless the program configures logging itself.
    """
    try:
        if processes < 1:
            raise InputError(f"--processes is {processes}", "pass at least 1")
        config = _config(target, queues, concurrency, log_level, log_format)
    except InputError as error:
        print(f"perdure worker: {error}", file=sys.stderr)
        return BAD_CONFIG
    return asyncio.run(_supervise(config, processes))


def _config(
    target: str,
    queues: str | None,
    concurrency: int | None,
    log_level: str | None,
    log_format: str | None,
) -> WorkerConfig:
    """Checks the options that can be checked without importing user code."""
    level = None if log_level is None else check_level(log_level)
    form = None if log_format is None else check_format(log_format)
    if concurrency is not None:
        Settings(concurrency=concurrency)
    names = None
    if queues is not None:
        given = queues.split(",") if queues else []
        names = tuple(require_name("queue", name.strip()) for name in given)
    return WorkerConfig(target, names, concurrency, level, form)


async def _supervise(config: WorkerConfig, processes: int) -> int:
    return await Supervisor(config, SupervisionPolicy(processes)).run()
