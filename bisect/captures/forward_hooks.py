"""`hangbisect.capture(module)`: the hooks that write the inputs and outputs of a module's forward,
and the session of a process that switches them on and off and holds them to the limits.

Whatever fails here, the job runs: capturing stops, and says why once.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable
from time import monotonic
from typing import Any, TypeVar

from ..base.files import write_whole
from ..base.lazy_dataclass import dataclass
from . import capture_file
from .capture_file import Amount, Switch, encode_call, measure_rank, why_full

LOOK_EVERY = 1.0  # seconds between two looks at the switch


@dataclass(frozen=True)
class Rank:
    """Which rank of how many this process is."""

    number: int
    world_size: int


class Session:
    """What all captured modules of a process share that write into one folder."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        # Seconds on the monotonic clock before which nothing is done; 0 while it captures.
        self.nothing_until = 0.0
        self.modules: list[str] = []
        self.rank = Rank(0, 1)
        self._look_at = 0.0
        self._seen: Switch | None = None
        self._has = Amount()
        self._stopped = ""

    def is_on(self, now: float) -> bool:
        """Return whether to capture; look at the switch if it is time. `now` is monotonic."""
        if now >= self._look_at:
            self._look_at = now + LOOK_EVERY
            found = capture_file.read_switch(self.folder)
            if found != self._seen:
                self._switched(found)
        captures = self._seen is not None and not self._stopped
        self.nothing_until = 0.0 if captures else self._look_at
        return captures

    def _switched(self, found: Switch | None) -> None:
        self._seen, self._stopped = found, ""
        if found is None:
            return
        self.rank = find_rank()
        try:
            self._has = measure_rank(self.folder, self.rank.number)
            self._tell(found)
        except OSError as error:
            self.stop(_reason(error))

    def write(self, file: str, data: bytes) -> None:
        """Write a file of this rank's, if there is room for it; else stop."""
        if self._seen is None or self._stopped:
            return
        limits, inputs = self._seen.limits, file.endswith(capture_file.INPUTS)
        try:
            free = shutil.disk_usage(self.folder).free
            # Outputs belong to inputs that were counted.
            has = self._has if inputs else Amount(0, self._has.bytes)
            why = why_full(has, len(data), limits, self.rank.world_size, free)
            if why:
                self.stop(why)
                return
            write_whole(os.path.join(self.folder, file), data)
        except OSError as error:
            self.stop(_reason(error))
            return
        self._has += Amount(int(inputs), len(data))

    def stop(self, why: str) -> None:
        """Capture no more until it is switched on anew; say so on stderr."""
        if self._stopped or self._seen is None:
            return
        self._stopped = why
        with contextlib.suppress(Exception):
            sys.stderr.write(f"hangbisect: rank {self.rank.number} captures no more: {why}\n")
        with contextlib.suppress(OSError):
            self._tell(self._seen)

    def _tell(self, seen: Switch) -> None:
        host, modules = socket.gethostname(), tuple(self.modules)
        state = capture_file.CaptureState(
            self.rank.number, host, os.getpid(), modules, seen.at, self._stopped
        )
        capture_file.write_state(self.folder, state)


def find_rank() -> Rank:
    """Return the rank in torch's process group; where there is none yet, the launcher's."""
    torch: Any = sys.modules["torch"]
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return Rank(torch.distributed.get_rank(), torch.distributed.get_world_size())
    from ..base.place import find_place

    place = find_place()
    return Rank(place.rank, place.world_size)


def _reason(error: OSError) -> str:
    return f"{error.filename or 'a capture'}: {error.strerror or error}"


_SESSIONS: dict[str, Session] = {}


def get_session(folder: str) -> Session:
    """Return this process's session for a folder."""
    if folder not in _SESSIONS:
        _SESSIONS[folder] = Session(folder)
    return _SESSIONS[folder]


Module = TypeVar("Module")


def capture(module: Module, name: str = "", folder: str = "") -> Module:
    """Keep the inputs and outputs of `module`'s forward while `hangbisect capture on` says so;
    return the module.

    `name` is that in the files' names (its class), `folder` where they lie (HANGBISECT_CAPTURE_DIR,
    or "captures"). A module that is captured already stays so. Inside what torch.compile compiles
    nothing is captured. Raises TypeError for what is no torch.nn.Module.
    """
    torch: Any = sys.modules.get("torch")
    if torch is None or not isinstance(module, torch.nn.Module):
        raise TypeError(
            f"hangbisect.capture() takes a torch.nn.Module, not {type(module).__name__}"
        )
    given: Any = module
    if any(isinstance(hook, Listener) for hook in given._forward_pre_hooks.values()):
        return module
    listener = Listener(name or type(module).__name__, capture_file.find_folder(folder), torch)
    given.register_forward_pre_hook(listener, with_kwargs=True)
    return module


class Listener:
    """The hook before a module's forward. Its way while nothing is captured is short: each call
    goes it (benchmarks/capture_cost.py).
    """

    def __init__(self, name: str, folder: str, torch: Any) -> None:
        self.name = name
        self.session = get_session(folder)
        if name not in self.session.modules:
            self.session.modules.append(name)
        self._is_compiling: Callable[[], bool] = torch.compiler.is_compiling
        self._after: Any = None  # the handle of the hook after the forward

    def __call__(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Keep what `module` is called with, if it is time to."""
        # Dynamo takes the first for the constant True: nothing of us is in what it compiles.
        if self._is_compiling() or monotonic() < self.session.nothing_until:
            return
        self._listen(module, args, kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        # Who pickles or copies a module gets one that does not listen, and needs nothing of ours:
        # the end of a `with nullcontext()` takes any arguments, and does nothing.
        return getattr, (contextlib.nullcontext(), "__exit__")

    def _listen(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        session = self.session
        if self._after is not None:  # an interrupted forward has left it
            self._after.remove()
            self._after = None
        try:
            if not session.is_on(monotonic()) or _cannot_copy():
                return
            call = _Call(session, module, self.name)
            call.keep(capture_file.INPUTS, {"args": args, "kwargs": kwargs})
            self._listen_after(module, call)
        except Exception as error:  # whatever it is: the job's forward is what counts
            session.stop(f"{type(error).__name__}: {error}")

    def _listen_after(self, module: Any, call: _Call) -> None:
        before = sys.exc_info()[1]

        def after(module: Any, args: Any, output: Any) -> None:
            handle.remove()
            self._after = None
            error = sys.exc_info()[1]
            try:
                if error is not None and error is not before:  # always_call: forward has raised
                    call.keep(capture_file.OUTPUTS, None, f"{type(error).__name__}: {error}"[:2000])
                else:
                    call.keep(capture_file.OUTPUTS, output)
            except Exception as failure:
                call.session.stop(f"{type(failure).__name__}: {failure}")

        handle = self._after = module.register_forward_hook(after, always_call=True)


class _Call:
    """One call of forward, whose inputs and outputs lie in files of the same stem."""

    def __init__(self, session: Session, module: Any, name: str) -> None:
        self.session = session
        self._at = time.time()
        self._stem = capture_file.file_stem(name, session.rank.number, self._at)
        self._name = name
        self._module = module

    def keep(self, ending: str, value: Any, raised: str = "") -> None:
        """Write the file that ends so. Raises what goes wrong, but for the disk."""
        session = self.session
        data = encode_call(
            self._module,
            value,
            kind="inputs" if ending == capture_file.INPUTS else "outputs",
            name=self._name,
            rank=session.rank.number,
            world_size=session.rank.world_size,
            at=self._at,
            raised=raised,
        )
        session.write(f"{self._stem}{ending}", data)


def _cannot_copy() -> bool:
    """Return whether a CUDA graph is being recorded, which a copy to the CPU would spoil."""
    cuda: Any = sys.modules["torch"].cuda
    return bool(cuda.is_initialized() and cuda.is_current_stream_capturing())
