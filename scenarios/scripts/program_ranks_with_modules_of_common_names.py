"""Three ranks whose own modules have names that others use, by several kinds of interpreter.

One by a symbolic link, one from a .zip file with -E, one with -I -S; each has its own path.
"""

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

MODULES = {
    "base.py": "WORDS = ['words', 'of', 'base']\n",
    "monitor.py": "import base\n\n\ndef main():\n    return ' '.join(base.WORDS)\n",
    "link.py": "import monitor\nNAME = monitor.__name__\n",
    "rank/__init__.py": "from .link import side\n",
    "rank/link.py": "def side():\n    return 'own rank.link'\n",
    "evidence/__init__.py": "",
    "report.py": "TITLE = 'own report'\n",
    "sitecustomize.py": "import sys\nprint('own sitecustomize', sys.flags.isolated, flush=True)\n",
    "run.py": (
        "import base, link, monitor, rank, report, evidence, sys, os\n"
        "import torch\n"
        "print(monitor.main(), link.NAME, rank.side(), report.TITLE, evidence.__doc__)\n"
        "print(sorted(one for one in sys.modules if one in ('base', 'rank', 'front', 'cli')))\n"
        "print(os.path.basename(sys.argv[0]), sys.argv[1:], torch.ones(2).sum().item())\n"
        "print('sitecustomize' in sys.modules, sys.flags.no_site, sys.flags.ignore_environment)\n"
    ),
}


def rank(number: int, words: list[str], **more: str) -> None:
    own = {**os.environ, "RANK": str(number), "WORLD_SIZE": "3", "LOCAL_RANK": str(number), **more}
    done = subprocess.run(words, env=own, stdout=subprocess.PIPE, text=True)
    print(number, done.returncode, done.stdout, flush=True)


def main() -> None:
    for name, text in MODULES.items():
        file = Path("lib", name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    with zipfile.ZipFile("train.pyz", "w") as packed:
        for name, text in MODULES.items():
            packed.writestr("__main__.py" if name == "run.py" else name, text)
    os.symlink(sys.executable, "own-python")
    packages = sysconfig.get_path("purelib")
    rank(0, ["./own-python", "lib/run.py", "a b"], PYTHONPATH=f"lib:{packages}")
    start = f"import sys; sys.path[:0] = [{packages!r}]; import runpy; "
    rank(1, [sys.executable, "-E", "train.pyz", "c"])
    start += "sys.path.insert(0, 'lib'); runpy.run_path('lib/run.py', run_name='__main__')"
    rank(2, [sys.executable, "-I", "-S", "-c", start, "d"])


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# outcome = "ok"
# ///
