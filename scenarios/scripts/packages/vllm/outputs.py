"""A stand-in of vllm/outputs.py."""


class RequestOutput:
    pass
