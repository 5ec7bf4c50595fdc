"""What is compiled. Everything else of the build is in pyproject.toml."""

from glob import glob

from setuptools import Extension, setup


def compiled(package: str) -> Extension:
    """The module `_quick` of a package. Where it can't be compiled, the Python that it stands for does the same and
    takes longer."""
    folder = f"src/{package.replace('.', '/')}/compiled"
    return Extension(
        f"{package}._quick", [f"{folder}/quick.c"], depends=glob(f"{folder}/*.h"), optional=True
    )


setup(ext_modules=[compiled("perdure.core.journal"), compiled("perdure.store.sqlite")])
