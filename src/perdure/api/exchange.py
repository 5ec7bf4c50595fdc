"""One request and what its handler needs: the engine, the caller, the run that the path names."""

from collections.abc import Mapping
from typing import Any, Final, cast

from starlette.requests import Request

from perdure.api.doors.caller import Caller
from perdure.api.endpoint import Endpoint
from perdure.api.problems import Refusal
from perdure.client.engine import Engine
from perdure.client.runs.handle import Handle
from perdure.client.runs.rows import require_run
from perdure.client.served import host_of_engine
from perdure.core.codec import Codec
from perdure.core.errors import Denied, UnknownRun
from perdure.core.ids import parse_run_id
from perdure.core.journal.events import ActType
from perdure.core.runs.acts import EXPLANATIONS, Act
from perdure.core.runs.authority import ActedRun, AllowAll, Roles
from perdure.host.host import Host
from perdure.store.rows.records import Run
from perdure.store.store import Store

LONGEST_WAIT_S: Final = 60.0
"""What `Prefer: wait` may ask for at most."""

EVENT_STREAM: Final = "text/event-stream"


class Unchanged(Exception):
    """The caller has the newest version already."""


class Exchange:
    """A request of a caller that was let in."""

    def __init__(
        self,
        engine: Engine,
        endpoint: Endpoint,
        request: Request,
        caller: Caller,
        shared: dict[str, Any],
    ) -> None:
        self.engine = engine
        self.endpoint = endpoint
        self.request = request
        self.caller = caller
        self.shared = shared
        """What the requests of one server share, by name."""
        self.query: Any = None
        self.body: Any = None
        self.acted_scope = ""
        """The scope of the run that was looked at last, for the audit log."""

    @property
    def host(self) -> Host:
        return host_of_engine(self.engine)

    @property
    def store(self) -> Store:
        return self.host.dispatcher.store

    @property
    def codec(self) -> Codec:
        return self.host.dispatcher.codec

    @property
    def now_ms(self) -> int:
        return self.host.dispatcher.sources.now_ms()

    def part(self, name: str) -> str:
        """A part of the path."""
        return cast(str, self.request.path_params[name])

    @property
    def wants_events(self) -> bool:
        """Whether the caller asked for a stream of events."""
        return EVENT_STREAM in self.request.headers.get("accept", "")

    @property
    def wait_s(self) -> float | None:
        """How long the caller waits for an outcome: `Prefer: wait=30`. `None` if they did not ask."""
        for preference in self.request.headers.get("prefer", "").split(","):
            name, _, value = preference.strip().partition("=")
            if name.lower() == "wait":
                if not value.isascii() or not value.isdecimal() or len(value) > 6:
                    raise Refusal(
                        400,
                        "malformed",
                        f"the header Prefer has wait={value[:20]!r}",
                        "write whole seconds",
                    )
                return min(float(value), LONGEST_WAIT_S)
        return None

    def require_newer(self, etag: str) -> dict[str, str]:
        """The headers of an answer with that ETag. Raises `Unchanged` if the caller has it."""
        known = self.request.headers.get("if-none-match", "")
        if known == "*" or etag in (each.strip().removeprefix("W/") for each in known.split(",")):
            raise Unchanged(etag)
        return {"ETag": etag}

    def require_match(self, etag: str) -> None:
        """Refuse a change that was decided on an older state of the run."""
        wanted = self.request.headers.get("if-match")
        if wanted is None or wanted == "*":
            return
        if etag not in (each.strip() for each in wanted.split(",")):
            raise Refusal(
                412,
                "precondition-failed",
                f"the run is at {etag}, and the request was made for {wanted[:100]}",
                "look at the run again, and send the request with its ETag",
                {"ETag": etag},
            )

    async def run(self, run_id: str | None = None) -> Run:
        """The row of the run that the path names. One of another tenant is as unknown as one that does not exist."""
        given = self.part("run") if run_id is None else run_id
        run = await require_run(self.store, parse_run_id(given))
        if not self.caller.covers(run.scope):
            raise UnknownRun(f"there is no run {given!r}", "check the id and the store")
        self.acted_scope = run.scope
        return run

    async def chain(self) -> list[Run]:
        """The rows of the chain that the run of the path belongs to, in order."""
        return await self.chain_of(await self.run())

    async def chain_of(self, run: Run) -> list[Run]:
        return await self.store.chain(run.origin) or [run]

    async def handle(self) -> Handle[Any]:
        """A handle of the run that the path names."""
        return self.engine.handle((await self.run()).run_id)

    def scope_of(self, given: str | None) -> str | None:
        """The scope that a list is limited to: the given one, or the caller's."""
        if given is None:
            return self.caller.scope
        if not self.caller.covers(given):
            raise Refusal(
                403,
                "forbidden",
                f"scope {given!r:.200} is not yours",
                f"leave it out, or use {self.caller.scope!r} or one below it",
            )
        return given

    def location(self, path: str) -> dict[str, str]:
        """The header that names what was made, below the prefix that the API is served under."""
        return {"Location": self.request.scope.get("root_path", "") + path}

    async def require_act(self, kind: ActType, run: Run, reason: str) -> None:
        """Refuse an act that the caller's role may not do. An engine's own authorizer decides by itself."""
        if not isinstance(self.host.authorizer, AllowAll):
            return
        actor = self.caller.actor
        act = Act("", kind, actor.name, actor.role, reason)
        of = ActedRun(run.run_id, run.program, run.version, run.scope, run.key, str(run.status))
        refusal = await Roles().decide(act, actor, of, reason)
        if refusal is not None:
            role = actor.role or "no role"
            raise Denied(
                f"{kind} of run {run.run_id!r} by {actor.name!r} ({role}) is denied: {refusal}",
                EXPLANATIONS.get(refusal, "the authorizer refused"),
                refusal,
            )

    def command(self) -> str:
        """The command that does the same on the command line; empty if there is none."""
        template = self.endpoint.command
        try:
            return template.format_map(_Quoted(self.request.path_params)) if template else ""
        except (KeyError, ValueError):
            return template


class _Quoted(dict[str, Any]):
    """Parts of a path as words of a shell."""

    def __init__(self, parts: Mapping[str, Any]) -> None:
        super().__init__({name: _word(str(value)) for name, value in parts.items()})

    def __missing__(self, name: str) -> str:
        return name.upper()


def _word(text: str) -> str:
    """Text as one word of a shell, short enough for an error."""
    short = "".join(each if each.isprintable() else "?" for each in text[:200])
    plain = short.replace("-", "").replace("_", "").replace(".", "").replace(",", "")
    return short if plain.isalnum() and short.isascii() else "'" + short.replace("'", "'\\''") + "'"


def etag_of(run: Run) -> str:
    """The ETag of a run: its entries, and the owner's epoch, because a change of owner adds no entry."""
    return f'"{run.seq}.{run.epoch}"'
