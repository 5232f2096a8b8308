"""vLLM: a server that is ready, and that nobody asks anything.

vLLM is a stand-in, written from its source. This file is the model with code of its own.
"""

# /// case
# command = """python -m vllm.entrypoints.openai.api_server --model train.py -tp 2 --port $PORT
# --stop-after $AMOUNT"""
# packages = ["vllm"]
# needs = ["zmq", "setproctitle"]
# outcome = "ok"
# amount = 45
# ///
