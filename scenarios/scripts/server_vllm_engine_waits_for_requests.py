"""vLLM in a script, which reads its prompts slowly: the engine and its workers wait for them.

vLLM is a stand-in, written from its source. This file is also the model with code of its own.
"""

import os
import urllib.request

from vllm import LLM

if __name__ == "__main__":
    llm = LLM(__file__, tensor_parallel_size=2)
    with urllib.request.urlopen(os.environ["SERVICE"]) as prompts:
        for prompt in prompts:
            print(llm.generate(prompt.decode()))

# /// case
# command = "python train.py"
# world = "trickling_service"
# packages = ["vllm"]
# needs = ["zmq", "setproctitle"]
# outcome = "ok"
# amount = 45
# ///
