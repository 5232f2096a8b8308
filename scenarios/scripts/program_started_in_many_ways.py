"""Says how it was started: as a script, a module, a folder, an archive, from stdin, by a string."""

import os
import sys

import safetensors

told = [sys.argv, sys.orig_argv, sys.path, globals().get("__file__"), __name__]
told += [__spec__.name if __spec__ else None, sys.flags, sorted(globals())]
told += ["sitecustomize" in sys.modules, sys.gettrace(), safetensors.__name__]
os.write(1, f"{told}\n".encode())

# /// case
# command = "sh start.sh"
# outcome = "ok"
# [files]
# "start.sh" = """
# set -e
# mkdir app package
# cp train.py app/__main__.py
# cp train.py package/__main__.py
# python -m zipapp app -o app.pyz
# python train.py 'a b' --c
# python -u -m train 'a b'
# python -m package x
# python app x
# python app.pyz x
# python - x < train.py
# python -c "$(cat train.py)" x
# env -u HOME python -X dev train.py
# """
# ///
