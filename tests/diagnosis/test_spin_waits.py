"""Who spins in a wait for a GPU is told from who computes: by native frames, or by its line."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hangbisect.base.process_facts import Frame, Look
from hangbisect.diagnosis.process.blocking_reason import find_reason_in_look
from hangbisect.diagnosis.process.public_calls import find_group_call
from hangbisect.diagnosis.process.spin_waits import find_mpi_call, waits_by_spinning

from .made_up import look

_TRAIN = ("train train.py:20", "<module> train.py:30")
GPU = ("/dev/nvidia0",)


def native(name: str, *python: str) -> Look:
    """A look with a native frame in front of those of Python."""
    one = look(f"{name} <libcudart.so>:0", *(python or _TRAIN), call="", state="R")
    main = one.threads[0]
    frames = (replace(main.frames[0], native=True), *main.frames[1:])
    return replace(one, threads=(replace(main, frames=frames),))


def calls(*names: str, gpus: tuple[str, ...] = GPU, call: str = "") -> Look:
    """A look at a line of the job's own that calls these functions, as the source shows."""
    one = look(*_TRAIN, call=call, state="S" if call else "R")
    main = one.threads[0]
    frames = (replace(main.frames[0], calls=names), *main.frames[1:])
    return replace(one, threads=(replace(main, frames=frames),), gpus=gpus)


def python_frame(name: str, file: str, gpus: tuple[str, ...] = GPU) -> Look:
    one = look(*_TRAIN, call="", state="R")
    main = one.threads[0]
    inner = Frame(name, f"/venv/lib/python3.11/site-packages/{file}", 9)
    return replace(one, threads=(replace(main, frames=(inner, *main.frames)),), gpus=gpus)


_SPIN = look(*_TRAIN, call="", state="R")


@pytest.mark.parametrize(
    "name",
    [
        *("cudaStreamSynchronize", "cudaDeviceSynchronize", "cuStreamSynchronize"),
        *("cudaEventSynchronize", "cuCtxSynchronize", "hipStreamSynchronize", "cudaMemcpyAsync"),
    ],
)
def test_native_frames_of_one_look_tell_that_it_waits_for_a_gpu(name: str) -> None:
    assert waits_by_spinning([_SPIN, _SPIN, native(name)])


@pytest.mark.parametrize(
    "name",
    ["MPI_Gather", "PMPI_Allreduce", "MPI_Recv", "MPI_Waitall", "MPI_Barrier", "MPI_Sendrecv"],
)
def test_they_tell_that_it_waits_for_other_ranks_in_mpi(name: str) -> None:
    assert waits_by_spinning([_SPIN, _SPIN, native(name)])


@pytest.mark.parametrize(
    "name", ["MPI_Test", "MPI_Iprobe", "MPI_Testall", "MPI_Isend", "MPI_Wtime"]
)
def test_who_asks_mpi_and_goes_on_does_not_wait(name: str) -> None:
    assert not waits_by_spinning([_SPIN, _SPIN, native(name)])


@pytest.mark.parametrize("name", ["cudaLaunchKernel", "cudaMalloc", "at::native::add", "sgemm_"])
def test_who_hands_kernels_out_or_computes_does_not_wait(name: str) -> None:
    assert not waits_by_spinning([_SPIN, _SPIN, native(name)])


def test_nor_does_who_was_in_another_place_before() -> None:
    """A loop over short kernels is in such a call now and then."""
    earlier = look("step model.py:4", *_TRAIN, call="", state="R")
    assert not waits_by_spinning([_SPIN, earlier, native("cudaStreamSynchronize")])
    assert not waits_by_spinning([native("cudaStreamSynchronize")])


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("synchronize", "torch/cuda/__init__.py"),
        ("Stream.synchronize", "torch/cuda/streams.py"),
        ("Event.synchronize", "torch/cuda/streams.py"),
        ("synchronize", "torch/accelerator/__init__.py"),
    ],
)
def test_so_does_a_known_function_of_a_process_with_a_gpu(name: str, file: str) -> None:
    one = python_frame(name, file)
    assert waits_by_spinning([one, one])
    assert find_reason_in_look(one, 0).kind == "device"
    none = replace(one, gpus=())
    assert not waits_by_spinning([none, none])
    assert find_reason_in_look(none, 0).kind == "itself"


@pytest.mark.parametrize("names", [("item",), ("losses.append", "loss.item"), ("x.cpu", "tolist")])
def test_so_does_a_line_that_asks_a_tensor_for_its_value(names: tuple[str, ...]) -> None:
    one = calls(*names)
    assert waits_by_spinning([one, one])
    wait = find_reason_in_look(one, 0)
    assert (wait.kind, names[-1].rpartition(".")[2] in wait.detail) == ("device", True)


@pytest.mark.parametrize(
    "one",
    [
        calls("loss.item", gpus=()),
        calls("numpy.linalg.svd", "loss.item"),
        calls("model.forward"),
        calls("loss.item", call="recvfrom"),
        _SPIN,
    ],
    ids=["no GPU", "computes as well", "another call", "blocked elsewhere", "nothing known"],
)
def test_what_may_be_work_is_none(one: Look) -> None:
    assert not waits_by_spinning([one, one])


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("PMPI_Bcast", "bcast"),
        ("MPI_Gather", "gather"),
        ("MPI_Test", ""),
        ("MPI_Init_thread", "init_thread"),
    ],
)
def test_the_call_of_mpi_is_named_as_others_name_it(name: str, call: str) -> None:
    frames = tuple(one for one in native(name).threads[0].frames)
    assert find_mpi_call(frames) == call
    assert find_group_call(frames) == call
