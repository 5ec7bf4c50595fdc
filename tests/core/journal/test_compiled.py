"""The native module exists where it can be compiled."""

import importlib.util
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

PROGRAM = "#include <Python.h>\nint main(void) { return Py_IsInitialized(); }\n"


def test_native_append_is_available_where_it_can_be_compiled(tmp_path: Path) -> None:
    compiler = shutil.which((sysconfig.get_config_var("CC") or "cc").split()[0])
    if importlib.util.find_spec("perdure.core.journal._quick") is not None:
        return
    source = tmp_path / "program.c"
    source.write_text(PROGRAM)
    include = f"-I{sysconfig.get_paths()['include']}"
    command = [compiler or "cc", "-c", include, str(source), "-o", str(tmp_path / "program.o")]
    if compiler is not None and subprocess.run(command, check=False).returncode == 0:
        pytest.fail("there is a C compiler, but nothing is compiled: install Perdure again")
