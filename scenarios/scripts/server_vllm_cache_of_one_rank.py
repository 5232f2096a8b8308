"""vLLM: Worker_TP0 finds its autotune cache and skips the collectives in which Worker_TP1 measures:
they part in flashinfer_autotune.

vLLM is a stand-in, written from its source. This file is the model with code of its own.
"""


def autotune(rank):
    return rank == 0


# /// case
# command = "python -m vllm.entrypoints.openai.api_server --model train.py -tp 2 --port $PORT"
# packages = ["vllm"]
# needs = ["zmq", "setproctitle"]
# culprits = [[0], [0, 1]]
# culprits_by_stacks = [[1]]
# steps = ["warm_up", "first_collective", "barrier", "process_group", "script"]
# after = [
# "KV cache ready", "First all_reduce done",
# "Process group ready", "Model loaded", "Memory measured", ""
# ]
# own_code = true
# calls = ['barrier|all_reduce|compile_or_warm_up_model|flashinfer_autotune']
# causes = ["collective-mismatch"]
# says = ["flashinfer_autotune", "Worker_TP0"]
# ///
