"""Objects that an interpreter holds from its start on (cost.py puts this folder in PYTHONPATH)."""

import os

_BALLAST = [[] for _ in range(int(os.environ.get("BALLAST") or 0))]
