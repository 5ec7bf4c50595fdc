"""Gives machines the settings that they decide by."""

from perdure.engine.runs.machine import RunMachine
from perdure.host.settings import Settings


def configure(machine: RunMachine, settings: Settings) -> None:
    machine.parks_failures = settings.on_failure == "park"
    machine.acts_per_minute = settings.acts_per_minute
    machine.size.most_steps = settings.continue_after_steps
    machine.size.most_bytes = settings.continue_after_bytes
