"""Agents of Pydantic AI as workflows: model requests and tool calls are steps.

Give an agent the capability `PerdureDurability()`, and await `agent.run(...)` in a workflow. Outside a workflow the
agent runs as without it. Needs `perdure[pydantic-ai]`.
"""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, Literal, cast

from pydantic_ai.agent import EventStreamHandler
from pydantic_ai.durable_exec import (
    JSON_CODEC,
    BaseDurabilityCapability,
    DurabilityEngineSpec,
    DurableOperationBackend,
    DurableOperationId,
    JournalCallableOperationBackend,
    RoleBasedOperationConfig,
    conversation_id_from_run_id,
)
from pydantic_ai.models import Model
from pydantic_ai.tools import AgentDepsT
from pydantic_ai.toolsets import ToolsetTool

from perdure.authoring.context import WORKFLOW
from perdure.authoring.enclosing import ONE_TRY, StepOptions, enclosed_step
from perdure.authoring.verbs import now, uuid4
from perdure.core.errors import InputError

__all__ = ["PerdureDurability", "StepOptions"]

CONFIG_KEY = "perdure"
"""The key of tool metadata under which a tool has options of its own."""


class PerdureDurability(BaseDurabilityCapability[AgentDepsT]):
    """Makes an agent durable: `Agent(model, name="support", capabilities=[PerdureDurability()])`.

    The agent's name, or `name`, is part of the names of its steps: keep it. `models` are further models by key, of
    which a run may use one. `event_stream_handler` gets the events of each model response while it streams. `model`,
    `tool` and `event` are the options of these steps; a tool has its own with `metadata={"perdure": StepOptions(...)}`.
    """

    engine_spec = DurabilityEngineSpec(
        engine_name="Perdure",
        durable_unit_noun="step",
        durable_container_noun="workflow",
        codec=JSON_CODEC,
        wrapped_toolset_kinds=frozenset({"function", "mcp", "dynamic"}),
        toolset_lifecycles={
            "function": "enter-never",
            "mcp": "enter-in-durable-unit",
            "dynamic": "enter-never",
        },
        unsupported_runtime_toolset_kinds=frozenset({"function", "mcp", "dynamic"}),
        tool_config_key=CONFIG_KEY,
    )

    def __init__(
        self,
        *,
        models: Mapping[str, Model] | None = None,
        event_stream_handler: EventStreamHandler[AgentDepsT] | None = None,
        name: str | None = None,
        model: StepOptions = ONE_TRY,
        tool: StepOptions = ONE_TRY,
        event: StepOptions = ONE_TRY,
    ) -> None:
        super().__init__(models=models, event_stream_handler=event_stream_handler, name=name)
        self._model_options = _require_options("model", model)
        self._tool_options = _require_options("tool", tool)
        self._event_options = _require_options("event", event)

    @property
    def in_durable_context(self) -> bool:
        return WORKFLOW.get() is not None

    def get_default_run_id(self) -> str | None:
        return str(uuid4()) if self.in_durable_context else None

    def get_default_conversation_id(self, run_id: str) -> str | None:
        return conversation_id_from_run_id(run_id) if self.in_durable_context else None

    async def get_run_start_time(self, run_id: str) -> datetime | None:  # noqa: ARG002 - the interface of the base
        return now() if self.in_durable_context else None

    def get_durable_operation_backend(self) -> DurableOperationBackend[StepOptions]:
        config = RoleBasedOperationConfig[StepOptions](
            model=self._model_options,
            event=self._event_options,
            capability=self._tool_options,
            tool=self._tool_options,
            resolve_tool=self._options_of,
        )
        return _Steps(agent_name=self.name, default_model_id=self.default_model_id, config=config)

    def _options_of(
        self,
        operation_id: DurableOperationId,  # noqa: ARG002 - the interface of the base
        tool: object | None,
        tool_name: str,
    ) -> StepOptions | Literal[False]:
        """The options of a tool's step; `False` if it runs in the workflow itself."""
        found = cast("ToolsetTool[Any] | None", tool)
        metadata = {} if found is None else found.tool_def.metadata or {}
        given = metadata.get(CONFIG_KEY, self._tool_options)
        if given is False:
            return False
        return _require_options(f"metadata of tool {tool_name!r}", given)


def _require_options(what: str, given: object) -> StepOptions:
    if not isinstance(given, StepOptions):
        raise InputError(f"{what} is {given!r}", "pass StepOptions(retry=..., timeout=...)")
    return given


class _Steps(JournalCallableOperationBackend[StepOptions]):
    """Executes each operation of an agent as a step."""

    async def execute(
        self,
        *,
        operation_id: DurableOperationId,  # noqa: ARG002 - a step is identified by its place
        name: str,
        body: Callable[[], Awaitable[object]],
        cache_key: tuple[object, ...],  # noqa: ARG002 - as above
        config: StepOptions,
    ) -> object:
        return await enclosed_step(name, body, config)
