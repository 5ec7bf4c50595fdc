"""Parameters of runs: what a caller wants to change, checked and encoded; and their values now."""

from collections.abc import Iterable, Mapping
from typing import Any

from perdure.authoring.call import discard
from perdure.authoring.graphs.program import GraphProgram
from perdure.authoring.parameters import given_parameters
from perdure.authoring.program import Program, ProgramCall
from perdure.client.runs.inputs import input_of
from perdure.core.errors import InputError, UnreadableProgram
from perdure.core.graph.fields import PARAMS
from perdure.core.journal import events as e
from perdure.core.runs.acts import EXPLANATIONS, Code
from perdure.host.runs.dispatcher import Dispatcher
from perdure.store.rows.records import Run


def with_first_parameters(
    program: GraphProgram[..., Any], fields: dict[str, Any]
) -> dict[str, Any]:
    """The input of a graph that is started by name. Its field `params` is for the parameters, if it declares any."""
    if program.parameters is None or PARAMS not in fields:
        return fields
    arguments = {name: value for name, value in fields.items() if name != PARAMS}
    call = ProgramCall(program, arguments)
    discard(call)  # only its arguments are wanted
    return call.with_params(fields[PARAMS]).arguments


async def encoded_parameters(dispatcher: Dispatcher, run: Run, values: object) -> bytes:
    """The payload of the act. Refuses values that the program, if this process has it, does not declare."""
    what = f"new parameters of run {run.run_id!r}"
    if not isinstance(values, Mapping) or not values:
        raise InputError(
            f"{what}: {values!r:.100}", "pass a dict of new values by the names of parameters"
        )
    codec, limit = dispatcher.codec, dispatcher.context.settings.max_act_bytes
    program = await _program(dispatcher, run)
    if program is None:  # the owner has it, and decides
        return codec.encode(values, limit=limit)
    if program.parameters is None:
        explained = EXPLANATIONS[Code.NO_PARAMETERS]
        raise InputError(
            f"{what}: {program.noun} {program.name!r}: {explained}",
            "send a signal, or declare parameters in a new version of the program",
        )
    return codec.encode(
        program.parameters.require(codec, what, values),
        limit=dispatcher.context.settings.max_act_bytes,
    )


async def read_parameters(
    dispatcher: Dispatcher, run: Run, decisions: Iterable[e.Event]
) -> dict[str, Any]:
    """The values that the start and these decisions have given; and the defaults, if known."""
    codec, payload = dispatcher.codec, await input_of(dispatcher.store, run.run_id)
    if payload is None:
        raise InputError(
            f"the parameters of run {run.run_id!r} were erased",
            "see the receipt: `engine.retention.get(run_id)`",
        )
    given = given_parameters(codec, payload)
    for event in decisions:
        if isinstance(event, e.SignalAccepted) and event.payload is not None:
            given = {**given, **codec.decode(event.payload, dict[str, Any])}
    program = await _program(dispatcher, run)
    if program is None or program.parameters is None:
        return given
    return codec.decode(codec.encode(program.parameters.read(codec, given)), dict[str, Any])


async def _program(dispatcher: Dispatcher, run: Run) -> Program[..., Any] | None:
    """The program of the run, in its version; `None` if this process does not have it."""
    await dispatcher.catalogue.find_version(run.program, run.version)
    try:
        found = dispatcher.programs.find(run.program, run.version, run.digest)
    except UnreadableProgram:
        return None
    return None if found is None or found.version != run.version else found
