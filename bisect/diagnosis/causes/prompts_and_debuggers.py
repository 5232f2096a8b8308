"""Questions on a terminal that nobody sees or answers; tools and settings for debugging that are
the cause themselves.
"""

from __future__ import annotations

import re

from ...base.addresses import port_of
from ...base.words import format_ranks
from ..process.blocked_syscalls import WRITE_CALLS
from ..process.frames import format_frame
from .known_cause import Found, KnownCause, Scene, also, need, unless
from .signs import (
    find_blocked_processes,
    find_native_frame,
    format_descriptor,
    format_owner,
    frame_in,
    meets_its_peers,
    native_name,
    others_wait_for_it,
)

_ASKS = r"prompt|confirm|ask|getpass|unix_getpass|_raw_input|input|terminput|_?timed_input|readline"
_TERMINALS = ("/dev/pts/", "/dev/tty", "/dev/console")
_ASKING_PROGRAMS = re.compile(r"ssh|ssh-askpass|ssh-add|scp|sudo|git-remote-https?|passwd|gpg")


def _reads_its_input(scene: Scene) -> Found | None:
    """A rank reads its standard input or a terminal."""
    wait = scene.verdict.waits_for
    if wait is not None and wait.kind == "input":
        return Found(f"it waits for input from {wait.detail}", {"input": wait.detail})
    call = scene.view.call if scene.view else None
    for descriptor in call.descriptors if call and call.name not in WRITE_CALLS else ():
        named = descriptor.path.startswith(_TERMINALS) or descriptor.kind == "tty"
        if named or (descriptor.fd == 0 and scene.call in ("read", "poll", "select", "pselect6")):
            stream = format_descriptor(descriptor)
            return Found(f"{scene.call} on {stream}", {"input": stream})
    return None


def _a_program_reads_a_terminal(scene: Scene) -> Found | None:
    """A program that it started, and waits for, reads a terminal."""
    for view in find_blocked_processes(scene)[1:]:
        for one in view.call.descriptors if view.call and view.call.name == "read" else ():
            if one.path.startswith(_TERMINALS) or one.kind == "tty":
                who = f"{view.look.name} ({view.look.pid})"
                return Found(f"{who} reads {one.path}", {"input": f"{one.path}, in {who}"})
    return None


def _waits_for_what_reads_a_terminal(scene: Scene) -> Found | None:
    """The rank waits for that program."""
    if _a_program_reads_a_terminal(scene) is None:
        return None
    look = find_blocked_processes(scene)[1].look
    return Found(f"it waits for {look.name} ({look.pid})")


def _something_is_asked(scene: Scene) -> Found | None:
    """A rank, or a program for which it waits, reads its input or a terminal."""
    return _a_program_reads_a_terminal(scene) or _reads_its_input(scene)


def _asks_in_a_library(scene: Scene) -> Found | None:
    """Its frames are those of a question (getpass, prompt, confirm)."""
    for frame in [f for f in scene.frames if not f.native][:6]:
        if re.fullmatch(_ASKS, frame.name.rpartition(".")[2]):
            return Found(f"frame {format_frame(frame)}")
    return None


def _asking_child(scene: Scene) -> Found | None:
    """A child that asks for passwords (ssh, sudo, git) reads a terminal."""
    for look in scene.children:
        kernel = next((k for k in look.kernel if k.tid == look.pid), None)
        call = kernel.syscall if kernel else None
        paths = [d.path for d in (call.descriptors if call else ())]
        reads = call is not None and call.name in ("read", "poll", "ppoll", "select", "pselect6")
        terminal = next((p for p in paths if p.startswith(_TERMINALS)), "")
        if reads and terminal and _ASKING_PROGRAMS.fullmatch(look.name):
            return Found(f"{look.name} ({look.pid}) reads {terminal}", {"program": look.name})
    return None


def _waits_for_the_asking(scene: Scene) -> Found | None:
    """The rank waits for that program."""
    for view in find_blocked_processes(scene)[1:]:
        if _ASKING_PROGRAMS.fullmatch(view.look.name):
            return Found(f"it waits for {view.look.name} ({view.look.pid})")
    return None


_wandb_asks = frame_in(
    r"wandb/(?:sdk/lib/(?:apikey|wbauth/prompt|timed_input)|errors/term|util|sdk/wandb_login)\.py",
    r"prompt\w*|_prompt\w*|terminput|_terminput|confirm|timed_input|_posix_timed_input"
    r"|_use_existing_account|_create_new_account|_find_or_prompt_for_key",
    "A rank is in W&B's question for an account or a key",
)
_transformers_asks = frame_in(
    r"transformers/dynamic_module_utils\.py",
    "resolve_trust_remote_code",
    "A rank is in resolve_trust_remote_code",
)

PROMPT_CAUSES = (
    KnownCause(
        id="wandb-prompt",
        title="W&B asks for a key on a terminal, and nobody answers",
        signs=(need(_wandb_asks, 0.7), need(_reads_its_input, 0.6), also(others_wait_for_it, 0.1)),
        why="There is no key for W&B, so it asks on the terminal ({input}). Between the lines of "
        "all ranks the question is easily missed.",
        avoid=(
            "WANDB_API_KEY=<key>, or `wandb login` once on this machine",
            "WANDB_MODE=offline: no live charts until `wandb sync`",
        ),
        toggles=(("wandb", "offline"), ("wandb", "off")),
        references=("orrzohar/PROB#62",),
    ),
    KnownCause(
        id="remote-code-prompt",
        title="transformers asks whether to run the model's own code, and nobody answers",
        signs=(need(_transformers_asks, 0.7), need(_reads_its_input, 0.6)),
        why="The model brings code of its own, and trust_remote_code is not given, so every rank "
        "asks on the same terminal ({input}).",
        avoid=("trust_remote_code=True if you trust it, False if not",),
        references=("huggingface/diffusers#10727",),
    ),
    KnownCause(
        id="password-prompt",
        title="a program that a rank started asks for a password",
        signs=(need(_asking_child, 0.7), also(_waits_for_the_asking, 0.5)),
        why="{program} asks on a terminal, and nobody answers.",
        avoid=("keys or tokens instead of passwords; ssh -o BatchMode=yes fails and does not ask",),
        references=("deepspeedai/DeepSpeed#1832",),
    ),
    KnownCause(
        id="prompt",
        title="a rank asks a question, and nobody answers",
        signs=(
            need(_something_is_asked, 0.7),
            also(_waits_for_what_reads_a_terminal, 0.5),
            also(_asks_in_a_library, 0.3),
            unless(_wandb_asks),
            unless(_transformers_asks),
        ),
        why="A rank reads {input}: it asked something, or a debugger (pdb, breakpoint()) waits for "
        "a command.",
        avoid=(
            "start with </dev/null: what asks then fails at once, and says where",
            "subprocess.run(..., stdin=DEVNULL) where it is a program that asks",
            "answer by an argument or a variable",
        ),
        references=("huggingface/diffusers#10727", "orrzohar/PROB#62"),
    ),
)


_waits_for_a_client = frame_in(
    r"(?:debugpy|pydevd?|pydevd_\w+|_pydevd_bundle|remote_pdb|rpdb|web_pdb|ptvsd|madbg)\S*\.py"
    r"|(?:debugpy|ptvsd|pydevd)/\S+\.py",
    r"wait_for_client|wait_for_attach|_?settrace|set_trace|listen|accept|__init__|connect",
    "A rank waits until a debugger connects (debugpy, remote_pdb)",
)


def _listens(scene: Scene) -> Found | None:
    """It listens at a port for it."""
    look, store = scene.view and scene.view.look, scene.environment.get("MASTER_PORT")
    listening = [s for s in (look.sockets if look else ()) if s.state == "LISTEN"]
    found = next((s for s in listening if port_of(s.local) != store), None)
    return Found(f"it listens at {found.local}", {"port": found.local}) if found else None


def _stands_in_a_breakpoint(scene: Scene) -> Found | None:
    """Ranks wait for one that is in torch.distributed.breakpoint()."""
    frame = scene.frame(r"torch/distributed/__init__\.py", "breakpoint")
    return None if frame is None else Found(f"frame {format_frame(frame)}")


def _a_debugger(scene: Scene) -> Found | None:
    """A rank waits for somebody with a debugger."""
    return _waits_for_a_client(scene) or _stands_in_a_breakpoint(scene)


def _detail(scene: Scene) -> Found | None:
    """TORCH_DISTRIBUTED_DEBUG is DETAIL."""
    value = scene.environment.get("TORCH_DISTRIBUTED_DEBUG", "")
    return Found(f"TORCH_DISTRIBUTED_DEBUG={value}") if value.upper() == "DETAIL" else None


def _in_the_extra_group(scene: Scene) -> Found | None:
    """It waits in the extra group that this setting makes (ProcessGroupWrapper)."""
    native = find_native_frame(
        scene.frames, r"ProcessGroupWrapper|runCollectiveChecks|monitoredBarrier"
    )
    if native is not None:
        return Found(f"native frame {native_name(native)}")
    frame = scene.frame(r"torch/distributed/distributed_c10d\.py", "_create_process_group_wrapper")
    return None if frame is None else Found(f"frame {format_frame(frame)}")


def _makes_or_meets_it(scene: Scene) -> Found | None:
    """A rank waits for its peers, or in making the extra group, for which it asks the store."""
    return meets_its_peers(scene) or _in_the_extra_group(scene)


def _others_have_it_not(scene: Scene) -> Found | None:
    """Other ranks make no such group: the setting is not the same on all."""
    known = [one for one in scene.ranks if one.environment]
    others = [
        one.rank
        for one in known
        if one.environment.get("TORCH_DISTRIBUTED_DEBUG", "").upper() != "DETAIL"
    ]
    return Found(f"{format_ranks(others)} without it") if others else None


def _is_traced(scene: Scene) -> Found | None:
    """A tracer (strace, gdb) is attached to a process that is not stopped."""
    for view in find_blocked_processes(scene):
        tracer = view.look.traced_by
        if tracer and view.state != "t":
            values = {"tracer": tracer, "pid": view.look.pid}
            return Found(f"process {tracer} traces {format_owner(scene, view)}", values)
    return None


DEBUGGER_CAUSES = (
    KnownCause(
        id="waits-for-debugger",
        title="a rank waits for somebody with a debugger",
        signs=(need(_a_debugger, 0.8), also(_listens, 0.4)),
        why="A call for a remote debugger (debugpy.wait_for_client, remote_pdb, "
        "torch.distributed.breakpoint) is in the way, and nobody connects.",
        avoid=(
            "take that call out, or let a variable decide over it that nobody sets in a job",
            "connect to the port at which it listens",
        ),
        references=("https://docs.pytorch.org/docs/stable/distributed.html",),
    ),
    KnownCause(
        id="debug-detail-group",
        title="the debugging of torch.distributed adds a group, and that one hangs",
        signs=(
            need(_detail, 0.35),
            need(_makes_or_meets_it, 0.3),
            also(_in_the_extra_group, 0.5),
            also(_others_have_it_not, 0.5),
        ),
        why="At its highest level that debugging wraps every group in another one over gloo, with "
        "checks of its own before each collective; healthy jobs were seen to hang in it. Ranks "
        "without the variable make no such group, and one that has it waits there for them.",
        avoid=(
            "the same value on all nodes: `env | grep TORCH_DISTRIBUTED_DEBUG` on each",
            "unset TORCH_DISTRIBUTED_DEBUG, or set it to INFO",
        ),
        toggles=(("torch_distributed_debug", "OFF"),),
        references=("pytorch/pytorch#129672",),
    ),
    KnownCause(
        id="tracer-attached",
        title="a tracer is attached to a rank and slows it down",
        signs=(need(_is_traced, 0.7, proves=True), unless(_a_debugger)),
        why="Process {tracer} traces {pid}: each of its system calls stops it twice.",
        avoid=(
            "`ps -fp {tracer}` says what it is; detach it, or end it",
            "strace --seccomp-bpf -e trace=...: stops for the calls in question only",
        ),
        references=("https://man7.org/linux/man-pages/man1/strace.1.html",),
        outcomes=("slow", "hang", "interrupted"),
    ),
)
