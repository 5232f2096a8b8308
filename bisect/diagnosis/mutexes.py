"""Edges within one process: which thread has the mutex, or the GIL, that another one wants."""

from __future__ import annotations

from ..facts import Kernel, Look, RankFacts, Thread, Wait
from .drawing import Drawing
from .frames import worded
from .view import Seen, main_kernel

_TIME_LIMIT = 3  # which argument of futex() it is
_OF_THREADS = ("futex", "lock", "thread", "gil")


class Threads:
    """Draws what the threads of one process wait for at one another's hands."""

    def __init__(self, drawing: Drawing, name: str, facts: RankFacts, look: Look) -> None:
        """`name`: of the process's node, which stands for its main thread."""
        self._drawing, self._name, self._facts, self._look = drawing, name, facts, look
        self._drawn: set[int] = set()

    def of_main(self, view: Seen, wait: Wait) -> bool:
        """Draw whom the main thread waits for; return False if that is not known."""
        if wait.kind not in _OF_THREADS:
            return False
        has_gil = view.owner
        if wait.kind == "gil" and has_gil is not None and has_gil != view.main and has_gil.os_id:
            shows = f"it has the GIL{_in(has_gil)}"
            self._drawing.link(self._name, self._thread(has_gil.os_id), "gil", shows, hard=True)
            return True
        main = main_kernel(self._look)
        if main is None or main.syscall is None or main.syscall.futex is None:
            return False
        return self._mutex(self._name, main)

    def _mutex(self, source: str, waits: Kernel) -> bool:
        """Draw which thread has the mutex that the thread `waits` wants."""
        futex = waits.syscall.futex if waits.syscall else None
        if futex is None or futex.owner is None:
            return False
        draw, at = self._drawing, f"the mutex at {futex.address:#x}"
        if futex.owner_exists is False:
            gone = draw.node(f"thread {futex.owner}, which {self._name} does not have", "other")
            draw.link(source, gone, "futex", f"it has {at}")
        elif futex.owner == self._look.pid:
            draw.link(source, self._name, "futex", f"the main thread has {at}", hard=True)
        else:
            draw.link(source, self._thread(futex.owner), "futex", f"it has {at}", hard=True)
        return True

    def _thread(self, tid: int) -> str:
        """Return the node of another thread, drawn with what it waits for itself."""
        look = self._look
        known = next((t for t in look.threads if t.os_id == tid), None)
        says = f"{known.name or 'a thread'} of {self._name}" if known else f"of {self._name}"
        name = self._drawing.node(f"thread {tid}", "thread", says, self._facts.rank)
        kernel = next((k for k in look.kernel if k.tid == tid), None)
        if tid not in self._drawn and kernel is not None:
            self._drawn.add(tid)
            self._mutex(name, kernel)
            if _asks_for_the_gil(kernel) and look.main is not None and look.main.owns_gil:
                self._drawing.link(
                    name, self._name, "gil", "the main thread has the GIL", hard=True
                )
        return name


def _asks_for_the_gil(kernel: Kernel) -> bool:
    """Return True for the timed wait by which Python asks for the GIL, again and again."""
    args = kernel.syscall.args if kernel.syscall else ()
    futex = kernel.syscall is not None and kernel.syscall.name == "futex"
    return futex and len(args) > _TIME_LIMIT and args[_TIME_LIMIT] != 0


def _in(thread: Thread) -> str:
    return next((f", in {worded(f)}" for f in thread.frames if not f.native), "")
