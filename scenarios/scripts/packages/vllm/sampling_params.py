"""A stand-in of vllm/sampling_params.py."""


class SamplingParams:
    pass


class StructuredOutputsParams:
    pass
