"""Virtual environments that hold a wheel and its locked requirements, and nothing else.

The requirements are copied from the environment of the tests. `make venv` installed them there from
the same pins, with hashes, so the copy needs no network and no second download.
"""

import re
import shutil
import sys
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.packaging.building import ROOT, Wheel, run

PIN = re.compile(r"^([a-z0-9-]+)==([^ ]+)", re.MULTILINE)


@dataclass(frozen=True)
class Environment:
    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def site_packages(self) -> Path:
        (found,) = self.folder.glob("lib/python*/site-packages")
        return found


def install(wheel: Wheel, extra: str, folder: Path) -> Environment:
    """A new environment with `wheel` and what it requires for `extra`; "" is no extra."""
    environment = Environment(folder)
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder.parent)
    pins = dict(PIN.findall((ROOT / "requirements" / "runtime.txt").read_text()))
    for name in _closure(wheel.metadata().get_all("Requires-Dist", []), extra):
        _copy(name, pins[name], environment.site_packages)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", folder)
    run(*pip, "install", "--no-index", "--no-deps", "--no-compile", wheel.path, cwd=folder)
    run(*pip, "check", cwd=folder)
    return environment


def _closure(requirements: list[str], extra: str) -> set[str]:
    """The names of the packages that `requirements` lead to; Perdure's own extras are followed."""
    found: set[str] = set()
    pending = [(text, extra) for text in requirements]
    while pending:
        text, wanted = pending.pop()
        requirement = Requirement(text)
        if requirement.marker and not requirement.marker.evaluate({"extra": wanted}):
            continue
        name = canonicalize_name(requirement.name)
        if name == "perdure":
            pending += [(each, extra) for extra in requirement.extras for each in requirements]
        elif name not in found:
            found.add(name)
            pending += [(each, "") for each in distribution(name).requires or []]
    return found


def _copy(name: str, version: str, site_packages: Path) -> None:
    installed = distribution(name)
    assert installed.version == version, f"{name} {installed.version} is installed: run make venv"
    for file in installed.files or []:
        if ".." not in file.parts and "__pycache__" not in file.parts:
            target = site_packages / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file.locate(), target)
