"""Whose a native function is, by the path of the library that has its code, or of its source where
py-spy knows it.
"""

from __future__ import annotations

import re

# What calls a function of C for Python code.
CALLS_FOR_PYTHON = re.compile(r"/libffi[^/]*$|/_ctypes[./]|/_cffi_backend\.")
CODE_OF_PYTHON = re.compile(
    r"/libpython[^/]*$|/bin/python[^/]*$|/Python-[\d.]+/|/lib-dynload/(?!_ctypes)"
)
CODE_OF_LIBC = re.compile(r"/(?:libc|libpthread|libm|ld-linux[^/.]*|ld-musl[^/.]*)[.-][^/]*$")
# Libraries that read and write for whoever calls them, as the C library does.
CODE_BELOW_A_CALLER = re.compile(rf"{CODE_OF_LIBC.pattern}|/lib(?:ssl|crypto|resolv)[.-][^/]*$")
# MPI, and what it starts and finds its processes with.
CODE_OF_MPI = re.compile(
    r"/lib(?:mpi|mpich|open-rte|open-pal|pmix|pmi2?|prrte)[^/]*\.so|/mpi4py/MPI[^/]*\.so"
)
# By which the processes of a job send one another messages: MPI, NCCL, torch (with gloo and the
# store), UCX, libfabric, PSM2, NVSHMEM, Ray.
CODE_OF_PEERS = re.compile(
    rf"{CODE_OF_MPI.pattern}|/lib(?:nccl|rccl|gloo|torch|c10|uc[pstm]|fabric|psm2|nvshmem)"
    r"[^/]*\.so|/ray/_raylet[^/]*\.so"
)
