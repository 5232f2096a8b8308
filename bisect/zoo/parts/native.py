"""C compiled for a case: calls that libraries make where no Python frame can show them."""

from __future__ import annotations

import subprocess
from pathlib import Path

LIMIT = 60.0  # seconds for the compiler


def compiled(folder: Path, name: str, source: str) -> Path:
    """Compile `source` as the shared library lib`name`.so in `folder`; needs "gcc"."""
    file, library = folder / f"{name}.c", folder / f"lib{name}.so"
    file.write_text(source)
    command = ["gcc", "-O1", "-g", "-shared", "-fPIC", "-o", str(library), str(file)]
    subprocess.run(command, check=True, timeout=LIMIT)
    return library
