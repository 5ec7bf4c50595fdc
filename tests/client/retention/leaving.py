"""Programs whose data goes everywhere, and everything that a store, its artifacts and its archive hold."""

import base64
import gzip
import json
from pathlib import Path

import perdure
from perdure import Engine, Handle, Limit, Signal, task, workflow
from tests.client.engines import until_store
from tests.client.payloads.stored_bytes import stored_bytes

SECRET = "Zebedee-Quux"
TRACES = (SECRET.encode(), SECRET.lower().encode(), base64.b64encode(SECRET.encode())[:-4])

note = Signal("retention.note", str)


@task(name="retention.copy")
async def copy(value: str) -> str:
    ref = await perdure.put_artifact(f"report about {value}", kind="report")
    assert ref.size_bytes
    perdure.publish("task", value)
    return value + " was here"


@task(name="retention.large")
async def large(value: str) -> str:
    return value * 180_000


@task(name="retention.refuse")
async def refuse(value: str) -> None:
    raise ValueError(f"no {value}")


@workflow(name="retention.child")
async def child(value: str) -> str:
    return await copy(value)


@workflow(
    name="retention.spread",
    limit=Limit("retention", running=9, by=lambda value: value),
)
async def spread(value: str) -> str:
    """Leaves its input in every place that a run has."""
    perdure.tag(customer=value)
    perdure.publish("name", value)
    perdure.stream("lines").append(value)
    await large(value)
    try:
        await refuse(value)
    except ValueError as error:
        perdure.publish("error", str(error))
    await child(value)
    return await note.receive(ask=f"Is {value} there?", who=value)


@workflow(name="retention.plain")
async def plain(value: str) -> str:
    return value


@workflow(name="retention.waiting")
async def waiting(value: str) -> str:
    return value + await note.receive()


@workflow(name="retention.parent")
async def parent(value: str) -> str:
    started = await perdure.start(waiting(value))
    return await started.result()


@workflow(name="retention.looping")
async def looping(left: int, value: str) -> str:
    if not left:
        return value
    return await perdure.continue_as_new(looping(left - 1, value))


async def spread_out(engine: Engine) -> Handle[str]:
    """A run of `spread` that is over."""
    run = await engine.start(
        spread(SECRET), key=f"key {SECRET}", tags={"who": SECRET}, scope="retention"
    )

    async def asks() -> bool:
        return bool((await run.waits()).signals)

    await until_store(asks)
    await (await run.pause(f"{SECRET} asked")).decision(60)
    await (await run.resume(f"{SECRET} agreed")).decision(60)
    await run.signal(note, f"signal {SECRET}", id=f"first {SECRET}")
    await run.signal(note, f"unread {SECRET}")
    assert await run.result(60) == f"signal {SECRET}"
    return run


async def heads_of(engine: Engine) -> dict[str, str]:
    """The heads of all journals, as they are kept outside the store."""
    return {str(run_id): head for run_id, head in (await engine.verify()).heads.items()}


async def everything(url: str, *folders: Path) -> bytes:
    """All bytes of a store and of folders; of what is compressed or in base64, what it holds."""
    found = [await stored_bytes(url)]
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                found += [str(path).encode(), *_parts(path.read_bytes())]
    return b"\n".join(found)


def _parts(content: bytes) -> list[bytes]:
    if not content.startswith(b"\x1f\x8b"):
        return [content]
    text = gzip.decompress(content)
    found = [text]
    for line in text.splitlines():
        found += _texts(json.loads(line))
    return found


def _texts(value: object) -> list[bytes]:
    """What the texts of a JSON value hold, if they are base64."""
    match value:
        case str():
            try:
                return [base64.b64decode(value, validate=True)]
            except ValueError:
                return []
        case dict():
            return [each for item in value.values() for each in _texts(item)]
        case list():
            return [each for item in value for each in _texts(item)]
        case _:
            return []


def traces(content: bytes) -> list[bytes]:
    """The traces of the secret, with their surroundings."""
    found = []
    for trace in TRACES:
        at = content.find(trace)
        if at >= 0:
            found.append(content[max(0, at - 60) : at + 60])
    return found
