"""The compiled modules. The rest of the build is in pyproject.toml."""

from glob import glob
from pathlib import Path

from setuptools import Extension, setup


def compiled(package: str) -> Extension:
    """The native module of a package, named like its stub. Optional: without it, slower Python code does the same."""
    home = Path("src", *package.split("."))
    (stub,) = home.glob("_*.pyi")
    folder = home / "compiled"
    return Extension(
        f"{package}.{stub.stem}",
        sorted(glob(f"{folder}/*.c")),
        depends=glob(f"{folder}/*.h"),
        optional=True,
    )


setup(ext_modules=[compiled("perdure.core.journal"), compiled("perdure.store.sqlite")])
