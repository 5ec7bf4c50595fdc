"""What is compiled. Everything else of the build is in pyproject.toml."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "perdure.core.journal._quick",
            ["src/perdure/core/journal/_quick.c"],
            depends=["src/perdure/core/journal/_sha256.h"],
            # Where it can't be compiled, the Python that it stands for does the same and takes longer.
            optional=True,
        )
    ]
)
