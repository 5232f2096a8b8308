"""A supervisor starts its engine again whenever that fails, and waits twice as long before each
start; the engine fails each time, as its model has a key that this version does not know.

Most of the time nothing but the supervisor is there, asleep. What the engine says is in a log file.
"""

import json
import pathlib
import subprocess
import sys
import time


def supervise(words: list[str], log: pathlib.Path) -> None:
    pause = 1.0
    while True:
        with log.open("a") as file:
            status = subprocess.run(words, stdout=file, stderr=file, check=False).returncode
        if status == 0:
            return
        time.sleep(pause)
        pause = min(2 * pause, 300.0)


def main() -> None:
    pathlib.Path("config.json").write_text(json.dumps({"layers": 12, "rope_kind": "yarn"}))
    supervise([sys.executable, "engine.py"], pathlib.Path("engine.log"))


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# culprits = [[0], [-1]]
# steps = ["script"]
# after = [""]
# own_code = true
# ends = true
# calls = ['supervise', 'sleep', 'main', '^$', 'load']
# says = ['engine|status 1|ended|sleep']
# [files]
# "engine.py" = '''
# """Loads its model."""
# import json
#
# KNOWN = {"layers", "width"}
#
#
# def load(path):
#     with open(path) as file:
#         config = json.load(file)
#     for key in config:
#         if key not in KNOWN:
#             raise ValueError(f"unrecognized configuration key {key!r}")
#
#
# load("config.json")
# '''
# ///
