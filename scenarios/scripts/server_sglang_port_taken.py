"""SGLang: its port is that of a scheduler which an earlier server has left behind; the server waits
for the port before it starts anything.

SGLang is a stand-in, written from its source. This file is the model with code of its own.
"""

# /// case
# command = "python -m sglang.launch_server --model-path train.py --tp 2 --port $PORT"
# world = "leftover_server"
# packages = ["sglang"]
# needs = ["zmq", "setproctitle"]
# culprits = [[0], [-1]]
# steps = ["script", "engine_ready"]
# after = ["", "Args parsed"]
# own_code = true
# calls = ['wait_port_available']
# causes = ["port-taken"]
# says = ["scheduler.TP0", 'pid \d+']
# ///
