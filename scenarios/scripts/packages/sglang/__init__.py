"""A stand-in for SGLang's server, written from its source: the same processes, titles, files and
names of functions, the same ready pipes and ZMQ, a model of nothing.

The server starts a scheduler for each rank of tensor parallelism and a detokenizer. The "model" is
a Python file (--model-path), as a model with code of its own is: what its functions `configure`,
`init_device` and `weights` do is what the server meets.
"""
