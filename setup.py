"""What is compiled. Everything else of the build is in pyproject.toml."""

from glob import glob

from setuptools import Extension, setup

COMPILED = "src/perdure/core/journal/compiled"

setup(
    ext_modules=[
        Extension(
            "perdure.core.journal._quick",
            [f"{COMPILED}/quick.c"],
            depends=glob(f"{COMPILED}/*.h"),
            # Where it can't be compiled, the Python that it stands for does the same and takes longer.
            optional=True,
        )
    ]
)
