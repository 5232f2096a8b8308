"""What setuptools cannot be told in pyproject.toml, where all else is.

The packages, found in a folder that has another name than the package; the zoo's cases, launchers
and scenario files, found in yet others; and, beside the package, the one-line .pth that `-m bisect`
needs (see bisect/_minus_m.py).
"""

import os

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

PTH = "hangbisect-minus-m.pth"


class BuildWithPth(build_py):
    """Copies it into each wheel, the editable one too, whose record makes pip remove it."""

    def run(self) -> None:
        """Build as ever, then add the file at the root."""
        super().run()
        # An editable wheel has no build folder: setuptools installs into the unpacked wheel.
        install = self.get_finalized_command("install")
        root = install.install_lib if self.editable_mode else self.build_lib
        self.copy_file(PTH, os.path.join(root, PTH))


# Where they are: pyproject.toml, package-dir.
ELSEWHERE = ["hangbisect.zoo_cases", "hangbisect.launchers", "hangbisect.scenario_files"]

setup(
    packages=[
        "hangbisect",
        *(f"hangbisect.{name}" for name in find_packages("bisect")),
        "hangbisect.start_up",  # no package: a folder for PYTHONPATH
        *ELSEWHERE,
    ],
    cmdclass={"build_py": BuildWithPth},
)
