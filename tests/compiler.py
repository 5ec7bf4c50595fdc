"""Whether this machine can compile the optional parts in C."""

import sysconfig
from pathlib import Path
from shutil import which


def can_compile() -> bool:
    compiler = (sysconfig.get_config_var("CC") or "").split()
    header = Path(sysconfig.get_path("include")) / "Python.h"
    return bool(compiler) and which(compiler[0]) is not None and header.exists()
