"""`perdure runs start`, and `perdure run`: starts a workflow that user code defines."""

import asyncio
import sys
from dataclasses import dataclass
from typing import Annotated, Any

from cyclopts import Parameter

from perdure import Engine, Handle, InputError, Workflow
from perdure.cli.front_end import front_end, json_value
from perdure.cli.importing import import_named, type_for_people
from perdure.cli.runs.acting import print_outcome, until_over
from perdure.cli.runs.listing import tag_option
from perdure.cli.store_setting import StoreOption, store_url
from perdure.client.admission_terms import StartTerms
from perdure.core.journal.entry import Entry

ProgramArgument = Annotated[str, Parameter(help="module:name of a workflow.")]
InputArgument = Annotated[
    str, Parameter(help="The arguments as JSON: an object by name, or a list in order.")
]
ParamsOption = Annotated[
    str | None, Parameter(help="The first values of the run's parameters, as a JSON object.")
]
KeyOption = Annotated[str | None, Parameter(help="The start key: one run per key.")]

_MEMORY = "sqlite:///:memory:"


@Parameter(name="*")
@dataclass(frozen=True)
class StartOptions:
    """What the run gets beside its input, and when it may begin."""

    key: KeyOption = None
    scope: Annotated[str, Parameter(help="The scope of the run and its key.")] = ""
    params: ParamsOption = None
    tag: Annotated[
        tuple[str, ...], Parameter(help="A tag, as NAME=VALUE; may be repeated.", negative=())
    ] = ()
    priority: Annotated[
        int, Parameter(help="Of the runs that wait for a limit, those with more begin first.")
    ] = 0
    delay: Annotated[float | None, Parameter(help="Seconds before the run may begin.")] = None
    approval: Annotated[
        bool, Parameter(help="Wait until an operator approves the run.", negative=())
    ] = False
    debounce: Annotated[
        float | None,
        Parameter(
            help="Seconds to wait after the last start with this key, which replaces the input."
        ),
    ] = None
    max_wait: Annotated[
        float | None, Parameter(help="With --debounce: the most seconds after the first start.")
    ] = None

    def terms(self) -> StartTerms:
        """The options that decide when it begins."""
        return StartTerms(
            priority=self.priority,
            delay=self.delay,
            approval=self.approval,
            debounce=self.debounce,
            max_wait=self.max_wait,
        )


def start_run(
    program: ProgramArgument,
    input_: InputArgument = "{}",
    /,
    *,
    options: StartOptions | None = None,
    store: StoreOption = None,
) -> int:
    """Start a run, which the workers of the store execute. Prints its id."""
    chosen = options or StartOptions()
    tags = dict(map(tag_option, chosen.tag))
    call = _with_params(_call(program, input_), chosen.params)

    async def begin() -> Handle[Any]:
        async with front_end(store) as engine:
            return await engine.start(
                call, key=chosen.key, scope=chosen.scope, tags=tags, **chosen.terms()
            )

    run = asyncio.run(begin())
    print(run.run_id)
    if not run.is_new:
        print(
            f"the key {chosen.key!r} belongs to this run, which was started before", file=sys.stderr
        )
    return 0


def run_program(
    program: ProgramArgument,
    input_: InputArgument = "{}",
    /,
    *,
    key: KeyOption = None,
    params: ParamsOption = None,
    store: StoreOption = None,
) -> int:
    """Run a workflow in this process, and print its result as JSON. The exit code is 1 if it failed.

    Without a store it runs in memory. With a store, an interrupted run resumes when the command is repeated with its
    key.
    """
    call = _with_params(_call(program, input_), params)
    try:
        url = store_url(store)
    except InputError:
        url = _MEMORY
    return asyncio.run(_run_here(url, call, key))


async def _run_here(url: str, call: Any, key: str | None) -> int:
    async with Engine(url, queues=()) as engine:
        handle = await engine.start(call, key=key)
        status = await until_over(engine, handle.run_id)
        last: Entry | None = None
        async for entry in handle.events(follow=False):
            last = entry
    return print_outcome(status, last)


def _with_params(call: Any, text: str | None) -> Any:
    return call if text is None else call.with_params(json_value(text))


def _call(target: str, text: str) -> Any:
    """The call of the workflow that `module:name` names."""
    module_name, _, name = target.partition(":")
    if not module_name or not name.isidentifier():
        raise InputError(
            f"{target!r} is not the name of a workflow",
            "pass a module and a workflow: 'app:checkout'",
        )
    module = import_named(module_name, "run the command")
    found = getattr(module, name, None)
    if not isinstance(found, Workflow):
        what = (
            f"module {module_name!r} has no {name!r}"
            if found is None
            else f"{target} is {type_for_people(found)}"
        )
        workflows = [each for each, value in vars(module).items() if isinstance(value, Workflow)]
        named = " or ".join(f"{module_name}:{each}" for each in workflows)
        raise InputError(what, f"pass {named}" if named else "pass the name of a workflow")
    given = json_value(text)
    try:
        if isinstance(given, dict):
            return found(**given)
        if isinstance(given, list):
            return found(*given)
    except TypeError as error:
        raise InputError(f"{target} can't take {text} ({error})", "pass its parameters") from None
    raise InputError(
        f"the input is {text}", "pass an object of arguments by name, or a list in order"
    )
