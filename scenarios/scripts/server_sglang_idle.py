"""SGLang: a server that is ready, and that nobody asks anything.

SGLang is a stand-in, written from its source. This file is the model with code of its own.
"""

# /// case
# command = """python -m sglang.launch_server --model-path train.py --tp 2 --port $PORT
# --stop-after $AMOUNT"""
# packages = ["sglang"]
# needs = ["zmq", "setproctitle"]
# outcome = "ok"
# amount = 45
# ///
