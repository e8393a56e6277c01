"""A libcuda.so.1 for machines without a GPU: its streams are threads, its faults are asked for by variables."""

import subprocess
from pathlib import Path
from typing import Final

LIBRARY: Final = "libcuda.so.1"
"""File name under which a process looks for the driver."""

FAULTS: Final = "STANDIN_FAULTS"
"""Variable that names what its device does wrong."""

SOURCE: Final = Path(__file__).parent / "standin" / "libcuda.c"


def compile_standin(directory: Path, *flags: str) -> Path:
    """The library, compiled into the directory with the machine's compiler."""
    library = directory / LIBRARY
    command = ["cc", "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-pthread", *flags]
    subprocess.run([*command, f"-Wl,-soname,{LIBRARY}", "-o", library, SOURCE], check=True)
    return library
