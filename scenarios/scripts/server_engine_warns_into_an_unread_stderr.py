"""A front starts its engine with pipes for stdout and stderr and waits for the line "ready"; the
engine warns of each of its 4,000 tensors on stderr, which nobody reads, and stands in write().

The front reads stdout only; stderr was to be shown where the engine fails.
"""

import argparse
import subprocess
import sys


def wait_until_ready(engine: "subprocess.Popen[str]") -> str:
    assert engine.stdout is not None
    for line in engine.stdout:
        if "ready" in line:
            return line.strip()
    assert engine.stderr is not None
    raise RuntimeError(engine.stderr.read())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="tiny")
    args = parser.parse_args()
    words = [sys.executable, "engine.py", args.model]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(words, text=True, **pipes) as engine:
        print(wait_until_ready(engine), flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --model tiny"
# culprits = [[0], [-1]]
# steps = ["script", "arguments"]
# after = ["Args parsed", ""]
# own_code = true
# calls = ['wait_until_ready', 'read', 'readline', 'main', 'write', 'load']
# causes = ["pipe-unread", "deadlock"]
# says = ['pipe|standard error|full|write']
# [files]
# "engine.py" = '''
# """Loads its model, and warns."""
# import sys
# import warnings
#
#
# def load(model):
#     for number in range(4000):
#         warnings.warn(f"{model}.layers.{number}.weight is not used", stacklevel=1)
#
#
# warnings.simplefilter("always")
# load(sys.argv[1])
# print("ready", flush=True)
# sys.stdin.read()
# '''
# ///
