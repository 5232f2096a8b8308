"""A stand-in for vLLM's V1 engine, written from its source: the same processes, titles, files and
names of functions, the same handshakes (ZMQ, ready pipes, a ring in shared memory), a model of
nothing.

An API server starts EngineCore, that starts a worker for each rank of tensor parallelism. The
"model" is a Python file (--model), as a model with code of its own is: what its functions
`init_device`, `weights`, `profile`, `autotune`, `capture` (of CUDA graphs, not in eager mode) and
`engine` do is what the server meets.
"""

import torch as torch  # as env_override.py does, in every process

from vllm.entrypoints.llm import LLM as LLM
from vllm.outputs import RequestOutput as RequestOutput
from vllm.sampling_params import SamplingParams as SamplingParams

__version__ = "0.31.0"  # the last that TRL 1.16 takes without a warning
