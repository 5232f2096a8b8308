"""What a process compiles, and how far that is: command lines, ninja's files, and folders."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hangbisect.base.compilers import (
    IN_PROCESS,
    find_cache_folder,
    find_compiled_file,
    find_compiling_frame,
    name_compiler,
    name_worker,
)
from hangbisect.base.process_facts import Build, Frame
from hangbisect.evidence.builds import (
    SeenProcess,
    find_build_folder,
    measure_folder,
    parse_build_file,
    parse_ninja_log,
    read_build,
    read_ninja_steps,
)
from hangbisect.evidence.process import variables_of
from hypothesis import given
from hypothesis import strategies as st

Start = Callable[..., subprocess.Popen[str]]

BUILD_FILE = """
ninja_required_version = 1.3
rule compile
  command = c++ -c $in -o $out
build main.o: compile /src/main.cpp
build cuda.o: cuda_compile /src/cuda.cu
build odd$ name.o: compile /src/odd.cpp
build fused.so: link main.o $
  cuda.o
build all: phony fused.so
default fused.so
"""
LOG = "# ninja log v5\n0\t9\t1700\tmain.o\tabc\n3\t9\t1700\tcuda.o\tdef\n1\t2\n"


@pytest.mark.parametrize(
    ("comm", "command", "named"),
    [
        ("cicc", ("/usr/local/cuda/nvvm/bin/cicc", "a.cu"), "cicc"),
        ("cudafe++", ("cudafe++",), "cudafe++"),
        ("nvcc", ("/bin/sh", "/opt/nvcc", "-c", "a.cu"), "nvcc"),
        ("sh", ("/bin/sh", "/opt/nvcc", "-c", "a.cu"), "nvcc"),
        ("x86_64-linux-gn", ("x86_64-linux-gnu-g++-13", "a.cpp"), "x86_64-linux-gnu-g++-13"),
        ("ninja", ("ninja", "-v"), "ninja"),
        ("python", ("python", "train.py"), ""),
        ("sh", ("sh", "-c", "nvcc a.cu"), ""),
        ("make-dataset", ("make-dataset",), ""),
        ("", (), ""),
    ],
)
def test_compilers_are_known_by_their_names(
    comm: str, command: tuple[str, ...], named: str
) -> None:
    assert name_compiler(comm, command) == named


def test_a_worker_of_inductor_compiles_for_another_process() -> None:
    command = ("python", "/site-packages/torch/_inductor/compile_worker/__main__.py", "--workers=2")
    assert name_worker(command) == "inductor's compile worker"
    assert name_worker(("python", "train.py")) == ""


@pytest.mark.parametrize(
    ("command", "file"),
    [
        (("nvcc", "-c", "/src/flash.cu", "-o", "flash.o"), "flash.cu"),
        (("cicc", "--orig_src_file_name", "/src/b.cu", "/tmp/b.cpp1.ii", "-o", "b.ptx"), "b.cu"),
        (("ptxas", "/tmp/b.ptx", "-o", "/tmp/b.sm_90.cubin"), "b.sm_90.cubin"),
        (("ld", "a.o", "-o", "fused.so"), "fused.so"),
        (("cc1plus", "-quiet", "x.cpp"), "x.cpp"),
        (("ninja", "-v"), ""),
    ],
)
def test_the_file_stands_on_the_command_line(command: tuple[str, ...], file: str) -> None:
    assert find_compiled_file(command) == file


@pytest.mark.parametrize(
    ("file", "name", "found"),
    [
        ("/sp/triton/backends/nvidia/compiler.py", "make_llir", "Triton"),
        ("/sp/torch/_dynamo/convert_frame.py", "_compile_inner", "torch.compile"),
        ("/sp/torch/_inductor/compile_fx.py", "compile_fx_inner", "torch.compile"),
        ("/sp/torch/_inductor/output_code.py", "__call__", ""),  # what is compiled already
        ("/sp/triton/runtime/jit.py", "run", ""),
        ("/sp/triton/runtime/autotuner.py", "_bench", "Triton's autotuner"),
        ("/sp/triton/runtime/autotuner.py", "run", ""),  # what is tuned already
        ("/sp/flashinfer/autotuner/autotuner.py", "choose_one", "FlashInfer's autotuner"),
        ("/sp/flashinfer/autotuner/autotuner.py", "search_cache", ""),
        ("/home/ada/train.py", "compile", ""),
    ],
)
def test_what_compiles_inside_of_python_is_known_by_its_frames(
    file: str, name: str, found: str
) -> None:
    frames = (Frame("step", "native.so", 0, native=True), Frame(name, file, 3))
    seen = find_compiling_frame(frames)
    assert (seen[1].name if seen else "") == found


def test_who_meets_other_ranks_while_it_compiles_waits_for_them() -> None:
    frames = (
        Frame("all_gather_object", "/sp/torch/distributed/distributed_c10d.py", 9),
        Frame("compile", "/sp/torch/_dynamo/convert_frame.py", 3),
    )
    assert find_compiling_frame(frames) is None


def test_caches_are_where_variables_say_or_in_the_home_of_the_process() -> None:
    triton = next(row for row in IN_PROCESS if row.name == "Triton")
    inductor = next(row for row in IN_PROCESS if row.name == "torch.compile")
    vllm = next(row for row in IN_PROCESS if row.name == "vLLM")
    assert find_cache_folder(triton, {"TRITON_CACHE_DIR": "/c"}, "ada") == "/c"
    assert find_cache_folder(triton, {"HOME": "/home/ada"}, "ada") == "/home/ada/.triton/cache"
    assert find_cache_folder(triton, {}, "ada") == ""
    assert find_cache_folder(inductor, {}, "ada") == "/tmp/torchinductor_ada"
    assert find_cache_folder(inductor, {"TMPDIR": "/x"}, "ada") == "/x/torchinductor_ada"
    assert find_cache_folder(vllm, {"VLLM_CACHE_ROOT": "/v"}, "ada") == "/v/torch_compile_cache"


# ---- ninja's files -------------------------------------------------------------------------------


def test_the_steps_of_a_build_are_its_edges_but_phony_ones() -> None:
    assert parse_build_file(BUILD_FILE) == {"main.o", "cuda.o", "odd name.o", "fused.so"}
    assert parse_ninja_log(LOG) == {"main.o", "cuda.o"}


def test_only_what_is_made_since_the_build_began_is_done(tmp_path: Path) -> None:
    (tmp_path / "build.ninja").write_text(BUILD_FILE)
    (tmp_path / ".ninja_log").write_text(LOG)
    for name in ("main.o", "cuda.o", "fused.so"):  # the last is not in the log: not complete yet
        (tmp_path / name).touch()
    assert read_ninja_steps(str(tmp_path), time.time() - 60) == (2, 4)
    os.utime(tmp_path / "main.o", (1, 1))  # of an earlier build
    assert read_ninja_steps(str(tmp_path), time.time() - 60) == (1, 3)
    assert read_ninja_steps(str(tmp_path / "none"), time.time()) == (None, None)


def test_a_folder_is_measured_with_what_is_below_it(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.o").write_bytes(bytes(10))
    (tmp_path / "y.o").write_bytes(bytes(5))
    assert measure_folder(str(tmp_path)) == (2, 15)
    assert measure_folder(str(tmp_path / "none")) == (None, None)


def test_ninja_builds_where_it_was_told_to() -> None:
    assert find_build_folder(("ninja", "-v"), "/b") == "/b"
    assert find_build_folder(("ninja", "-C", "out"), "/b") == "/b/out"
    assert find_build_folder(("make", "-C/x"), "/b") == "/x"


def test_a_build_is_read_of_a_real_process(tmp_path: Path) -> None:
    here = SeenProcess(os.getpid(), "ninja", ("ninja",), 60.0, ())
    build = read_build(here)
    assert build is not None
    assert (build.program, build.folder) == ("ninja", os.getcwd())
    gone = SeenProcess(2**22 + 1, "ninja", ("ninja",), 60.0, ())
    assert read_build(gone) is None
    assert read_build(SeenProcess(os.getpid(), "python", ("python",), 1.0, ())) is None


@given(st.text(max_size=200))
def test_garbage_in_ninjas_files_is_read_as_nothing_in_particular(text: str) -> None:
    assert isinstance(parse_build_file(text), frozenset)
    assert isinstance(parse_ninja_log(text), frozenset)


@given(st.text(max_size=20), st.lists(st.text(max_size=20), max_size=5).map(tuple))
def test_any_command_line_can_be_asked(comm: str, command: tuple[str, ...]) -> None:
    assert isinstance(name_compiler(comm, command), str)
    assert isinstance(find_compiled_file(command), str)


def seen(pid: int, *command: str, frames: tuple[Frame, ...] = ()) -> SeenProcess:
    return SeenProcess(pid, command[0].rpartition("/")[2], command, 60.0, frames)


def test_a_build_elsewhere_is_found_from_where_its_process_stands(
    start: Start, tmp_path: Path
) -> None:
    folder = tmp_path / "cache" / "fused_adam"
    folder.mkdir(parents=True)
    (folder / "build.ninja").write_text(BUILD_FILE)
    (folder / "main.o").write_bytes(bytes(100))
    process = start("sleep", "3600", cwd=tmp_path)
    assert read_build(seen(process.pid, "ninja", "-C", "cache/fused_adam", "-v")) == Build(
        *("ninja", "fused_adam", str(folder)),
        done=0,  # no log has a line yet
        steps=4,
        files=2,
        size=100 + len(BUILD_FILE),
    )


def test_what_triton_compiles_inside_of_python_is_measured_where_that_process_keeps_it(
    start: Start, tmp_path: Path
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "kernel.ptx").write_bytes(bytes(7))
    process = start("sleep", "3600", env={**os.environ, "TRITON_CACHE_DIR": str(tmp_path)})
    end = time.monotonic() + 60
    while not (variables_of(process.pid) or {}).get("TRITON_CACHE_DIR"):
        assert time.monotonic() < end
        time.sleep(0.01)
    frames = (
        Frame("wait", "/usr/lib/python3.11/subprocess.py", 1264),
        Frame("make_cubin", "/site-packages/triton/backends/nvidia/compiler.py", 420),
        Frame("forward", "/home/ada/train.py", 8),
    )
    found = read_build(seen(process.pid, "python", "train.py", frames=frames))
    assert found == Build("Triton", "compiler.py:420", str(tmp_path), files=1, size=7)
    assert read_build(seen(process.pid, "python", "train.py", frames=frames[-1:])) is None


def test_a_compiler_tells_its_file_and_one_that_is_gone_builds_nowhere() -> None:
    assert read_build(seen(1 << 30, "cicc", "-o", "a.ptx", "/src/kernel.cu")) == Build(
        "cicc", "kernel.cu"
    )
    assert read_build(seen(1 << 30, "ninja", "-C", "x")) is None
    worker = ("python", "/site-packages/torch/_inductor/compile_worker/__main__.py", "--workers=2")
    assert read_build(seen(1 << 30, *worker)) == Build("inductor's compile worker")
