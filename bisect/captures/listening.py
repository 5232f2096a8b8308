"""`hangbisect.capture(module)`: the hooks that keep the inputs of a module's forward."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from time import monotonic
from typing import Any, TypeVar

from . import places
from .session import Session, session_for
from .writing import file_of

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
    listener = Listener(name or type(module).__name__, places.folder(folder), torch)
    given.register_forward_pre_hook(listener, with_kwargs=True)
    return module


class Listener:
    """The hook before a module's forward. Its way while nothing is captured is short: each call
    goes it (benchmarks/capture_cost.py).
    """

    def __init__(self, name: str, folder: str, torch: Any) -> None:
        self.name = name
        self.session = session_for(folder)
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
            call.keep(places.INPUTS, {"args": args, "kwargs": kwargs})
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
                    call.keep(places.OUTPUTS, None, f"{type(error).__name__}: {error}"[:2000])
                else:
                    call.keep(places.OUTPUTS, output)
            except Exception as failure:
                call.session.stop(f"{type(failure).__name__}: {failure}")

        handle = self._after = module.register_forward_hook(after, always_call=True)


class _Call:
    """One call of forward, whose inputs and outputs lie in files of the same stem."""

    def __init__(self, session: Session, module: Any, name: str) -> None:
        self.session = session
        self._at = time.time()
        self._stem = places.stem(name, session.rank.number, self._at)
        self._name = name
        self._module = module

    def keep(self, ending: str, value: Any, raised: str = "") -> None:
        """Write the file that ends so. Raises what goes wrong, but for the disk."""
        session = self.session
        data = file_of(
            self._module,
            value,
            kind="inputs" if ending == places.INPUTS else "outputs",
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
