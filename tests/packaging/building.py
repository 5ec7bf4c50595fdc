"""Builds the sdist and wheels of this tree, away from it and without git."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from email.message import Message
from email.parser import Parser
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]

NOT_PACKAGED = shutil.ignore_patterns(
    *(".git", ".venv*", ".hypothesis", "build", "dist", "*.egg-info"),
    *("*_cache", "__pycache__", "*.so", "*.pyd", "*.db", "*.db-shm", "*.db-wal"),
)


@dataclass(frozen=True)
class Wheel:
    path: Path

    def names(self) -> list[str]:
        with zipfile.ZipFile(self.path) as archive:
            return archive.namelist()

    def compiled(self) -> list[str]:
        """The packages whose compiled module is in the wheel."""
        modules = (PurePosixPath(name) for name in self.names() if name.endswith((".so", ".pyd")))
        return sorted(".".join(module.parent.parts) for module in modules)

    def metadata(self) -> Message:
        with zipfile.ZipFile(self.path) as archive:
            (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
            return Parser().parsestr(archive.read(name).decode())


@dataclass(frozen=True)
class Packages:
    """An sdist, where it was unpacked, and the wheel that was built from it."""

    folder: Path

    @property
    def wheel(self) -> Wheel:
        return Wheel(_only(self.folder, "*.whl"))

    @property
    def sdist(self) -> Path:
        return _only(self.folder, "*.tar.gz")

    def sdist_names(self) -> set[str]:
        """The files of the sdist, relative to its one folder."""
        with tarfile.open(self.sdist) as archive:
            paths = [PurePosixPath(member.name) for member in archive if member.isfile()]
        assert {path.parts[0] for path in paths} == {self.sdist.name.removesuffix(".tar.gz")}
        return {str(PurePosixPath(*path.parts[1:])) for path in paths}


def build_packages(folder: Path) -> Packages:
    """Builds the sdist from a copy of the tree, and the wheel from the sdist, as `make dist` does.

    A build writes into the tree that it builds, which other tests read.
    """
    tree = folder / "tree"
    shutil.copytree(ROOT, tree, ignore=NOT_PACKAGED)
    _build(tree, folder)
    return Packages(folder)


def build_without_compiler(packages: Packages, folder: Path) -> Wheel:
    """Builds a wheel from the sdist where every call of the C compiler fails."""
    with tarfile.open(packages.sdist) as archive:
        archive.extractall(folder, filter="data")
    (tree,) = folder.iterdir()
    _build(tree, folder, "--wheel", CC=shutil.which("false") or "false")
    return Wheel(_only(folder, "*.whl"))


def run(*command: str | Path, cwd: Path, **variables: str) -> str:
    """The output of a command that succeeds, in an environment that names no other Python."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(
        command, cwd=cwd, env=inherited | variables, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _build(tree: Path, folder: Path, *options: str, **variables: str) -> None:
    """Without isolation: the backend is the hashed one that is installed here."""
    no_git = folder / "no-git"
    no_git.mkdir()
    (no_git / "git").symlink_to(shutil.which("false") or "false")
    path = f"{no_git}{os.pathsep}{os.environ['PATH']}"
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), *options]
    run(*build, tree, cwd=folder, PATH=path, **variables)


def _only(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found
