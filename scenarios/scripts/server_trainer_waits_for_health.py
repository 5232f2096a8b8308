"""A trainer asks the server that it has started whether it is healthy, again and again; the
server's Worker_TP1 reads a named pipe that nobody opens.

vLLM and TRL are stand-ins, written from their source. This file is also the model with code of its
own.
"""

import os
import subprocess
import sys


def weights(rank):
    if rank == 1:
        with open(os.environ["FIFO"]) as file:
            file.read()


def main(port):
    import torch
    from trl.extras.vllm_client import VLLMClient

    module = "vllm.entrypoints.openai.api_server"
    words = ["-m", module, "--model", __file__, "--tensor-parallel-size", "2", "--port", port]
    server = subprocess.Popen([sys.executable, *words])
    client = VLLMClient(f"http://127.0.0.1:{port}", connection_timeout=3600)
    print(client.base_url, torch.ones(1))
    server.terminate()


if __name__ == "__main__":
    main(sys.argv[1])

# /// case
# command = "python train.py $PORT"
# world = "unopened_fifo"
# packages = ["vllm", "trl"]
# needs = ["zmq", "setproctitle"]
# culprits = [[1], [0], [-1]]
# steps = ["load_model", "model", "script", "health"]
# after = ["Process group ready", "Device ready", "", "torch imported"]
# own_code = true
# calls = ['load_model|open|weights|check_server']
# causes = ["pipe-no-writer"]
# says = ["Worker_TP1", "/feed"]
# ///
