"""Storage that does not answer, or hardly: state D, network file systems, page faults."""

from __future__ import annotations

import re
from dataclasses import replace

from ...base.process_facts import Look, Sample
from ...base.words import format_bytes, format_rate
from ..process.process_snapshot import ProcessSnapshot
from .known_cause import Found, KnownCause, Scene, also, need, unless
from .signs import (
    THREAD_WAIT_FILES,
    find_blocked_processes,
    find_used_descriptors,
    format_owner,
    format_place,
)

# Where the kernel waits, by who is to answer. Names of functions of Linux 5.x to 6.x: net/sunrpc,
# fs/nfs, fs/fuse/dev.c, fs/smb/client, net/9p, fs/ceph, fs/autofs; Lustre's own module.
_NETWORK = (
    (r"rpc_\w+|nfs\d?_\w+|nfs4\w*|nlm\w+|xprt_\w+", "the server of an NFS file system"),
    (r"cl_sync_io_\w+|ldlm_\w+|ptlrpc_\w+|osc_\w+|ll_\w+|lov_\w+|mdc_\w+|obd_\w+", "Lustre"),
    (r"request_wait_answer|fuse_\w+|__fuse_\w+", "the program behind a FUSE file system"),
    (r"ceph_\w+|__ceph_\w+", "Ceph"),
    (r"cifs_\w+|smb2?_\w+|wait_for_response|compound_send_recv", "an SMB server"),
    (r"p9_\w+|v9fs_\w+", "the host (9p)"),
    (r"autofs\w*_wait\w*", "the automounter"),
    (r"cxiWaitEvent\w*|mmfs\w*|kxWaitCondvar\w*", "GPFS"),
    (r"afs_\w+", "an AFS server"),
)
# A frozen file system (fsfreeze, a snapshot being made): who writes waits for the thaw.
_FROZEN = re.compile(r"percpu_rwsem_wait|percpu_down_read|__percpu_down_read|__?sb_start_write\w*")
_DISK = re.compile(
    r"io_schedule\w*|folio_wait_bit_common|wait_on_page_bit\w*|__wait_on_buffer|wait_on_buffer"
    r"|blk_\w+|bio_\w+|__bio_\w+|submit_bio_wait|balance_dirty_pages|jbd2_\w+|wait_transaction\w*"
    r"|xfs_\w+|xlog_\w+|ext4_\w+|btrfs_\w+|iomap_\w+|dm_\w+|do_blockdev_direct_IO"
)
_WRITES = re.compile(
    r"p?writev?(?:2|64)?|pwritev2?|open(?:at2?)?|creat|mkdir(?:at)?|unlink(?:at)?|rmdir|rename(?:at2?)?"
    r"|f?truncate|fallocate|f(?:data)?sync|(?:sym)?link(?:at)?|f?chmod(?:at)?|utimensat|mmap"
)
_FEW_FAULTS, _CRAWLS = 5.0, 20 << 20  # page faults and bytes a second


def _in_the_kernel(scene: Scene) -> ProcessSnapshot | None:
    """Return the process, of those that are waited for, that does not come back from the kernel."""
    return next((v for v in _suspects(scene) if v.state == "D"), None)


def _suspects(scene: Scene) -> tuple[ProcessSnapshot, ...]:
    """Return the processes that are waited for, the last one first; where the main thread waits for
    its other threads (a logger's, a pool's), those as well, each as if it were a process.
    """
    view = scene.view
    found = tuple(reversed(find_blocked_processes(scene)))
    if view is None or scene.call != "futex" or scene.inside(THREAD_WAIT_FILES) is None:
        return found
    stacks = {thread.os_id: thread.frames for thread in view.threads}
    others = [task for task in view.look.kernel if task.tid != view.look.pid and task.state == "D"]
    return found + tuple(
        replace(view, frames=stacks.get(t.tid, ()), state="D", wchan=t.wchan, call=t.syscall)
        for t in others
    )


def _find_awaited_path(scene: Scene, view: ProcessSnapshot) -> str:
    if view.call is not None and view.call.path:
        return view.call.path
    return next((d.path for d in find_used_descriptors(scene, view) if d.kind == "file"), "")


def _who(scene: Scene, view: ProcessSnapshot) -> str:
    """Return a suspect in words: "it", "a thread of it", "its child tar (4711)"."""
    own = scene.view
    if own is not None and view.look.pid == own.look.pid and view.call != own.call:
        return "a thread of it"
    return format_owner(scene, view)


def _list_storage_values(scene: Scene, view: ProcessSnapshot) -> dict[str, object]:
    path = _find_awaited_path(scene, view)
    call = view.call_name or "a page fault"
    return {
        "pid": view.look.pid,
        "what": f"{call} of {path}" if path else f"{call} in {format_place(view)}",
        "path": path or "the file system in question",
    }


def _service(view: ProcessSnapshot) -> str:
    name = view.wchan.partition(".")[0]
    return next((who for pattern, who in _NETWORK if re.fullmatch(pattern, name)), "")


# ---- signs ---------------------------------------------------------------------------------------


def _uninterruptible(scene: Scene) -> Found | None:
    """A process is in the kernel and cannot be interrupted (state D)."""
    view = _in_the_kernel(scene)
    if view is None or view.look.frozen:
        return None
    values = _list_storage_values(scene, view)
    return Found(f"{_who(scene, view)} is in state D, in {values['what']}", values)


def _file_system_frozen(scene: Scene) -> Found | None:
    """The kernel waits for a frozen file system (percpu_rwsem_wait), in a call that writes."""
    view = _in_the_kernel(scene)
    if view is None or not _FROZEN.fullmatch(view.wchan.partition(".")[0]):
        return None
    if not _WRITES.fullmatch(view.call_name):
        return None
    return Found(f"the kernel waits in {view.wchan}: writing is suspended")


def _by_path(scene: Scene) -> Found | None:
    """It is known which file the call is about."""
    view = _in_the_kernel(scene)
    path = _find_awaited_path(scene, view) if view is not None else ""
    return Found(f"the call is about {path}") if path else None


def _in_every_look(scene: Scene) -> Found | None:
    """It was in the same call in every look."""
    view = _in_the_kernel(scene)
    looks = scene.all_looks(view.look.pid) if view is not None else ()
    if len(looks) < 2 or any(look.state != "D" for look in looks):
        return None
    calls = {_call(look) for look in looks}
    return Found(f"so in all {len(looks)} looks") if len(calls) == 1 else None


def _call(look: Look) -> tuple[str, int]:
    call = look.kernel[0].syscall if look.kernel else None
    return (call.name, call.stack) if call is not None else ("", 0)


def _waits_for_a_file_server(scene: Scene) -> Found | None:
    """The kernel waits for a network file system, or for the program behind one."""
    for view in _suspects(scene):
        service = _service(view)
        if service:
            values = _list_storage_values(scene, view) | {"service": service}
            words = f"{_who(scene, view)} waits in {view.wchan}, for {service}"
            return Found(words, values)
    return None


def _waits_for_a_disk(scene: Scene) -> Found | None:
    """The kernel waits for a disk, or for its file system's journal."""
    view = _in_the_kernel(scene)
    if view is None or not _DISK.fullmatch(view.wchan.partition(".")[0]):
        return None
    return Found(f"the kernel waits in {view.wchan}")


def _no_page_comes(scene: Scene) -> Found | None:
    """Nothing was read from storage between the first look and the last."""
    view = _in_the_kernel(scene)
    samples = _samples(scene, view.look.pid) if view is not None else ()
    if len(samples) < 2 or samples[-1].disk_read > samples[0].disk_read:
        return None
    return Found("nothing was read from storage meanwhile")


def _samples(scene: Scene, pid: int) -> tuple[Sample, ...]:
    return tuple(look.sample for look in scene.all_looks(pid) if look.sample is not None)


def _faults_page_by_page(scene: Scene) -> Found | None:
    """A process reads mapped files page by page, and each page has to wait for storage."""
    for facts in scene.living:
        samples = [look.sample for look in facts.looks if look.sample is not None]
        if len(samples) < 2 or samples[-1].at <= samples[0].at:
            continue
        seconds = samples[-1].at - samples[0].at
        faults = (samples[-1].faults - samples[0].faults) / seconds
        speed = (samples[-1].disk_read - samples[0].disk_read) / seconds
        if faults >= _FEW_FAULTS and speed < _CRAWLS:
            words = f"{faults:.0f} page faults a second wait for storage, at {format_rate(speed)}"
            return Found(words, {"faults": f"{faults:.0f}", "speed": format_bytes(speed)})
    return None


def _loads_code_or_weights(scene: Scene) -> Found | None:
    """It imports something, or loads weights."""
    view = scene.view
    frame = (
        scene.frame(
            r"<frozen importlib\._bootstrap(?:_external)?>", r"create_module|_find_and_load"
        )
        or scene.frame(r"safetensors/\S+\.py|torch/serialization\.py")
        or scene.frame(r"transformers/modeling_utils\.py|transformers/core_model_loading\.py")
    )
    if frame is None or view is None:
        return None
    return Found(
        f"it is in {format_place(view)}, called by {frame.name}", {"place": format_place(view)}
    )


def _swaps(scene: Scene) -> Found | None:
    """A rank has memory in swap, and the machine has hardly any left."""
    machine = scene.machine
    for view in scene.views.values():
        swapped = view.look.swapped or 0
        free, total = machine.memory_available, machine.memory_total
        if swapped > 256 << 20 and free is not None and total and free < total * 0.1:
            size, left = format_bytes(swapped), format_bytes(free)
            words = f"{size} of {view.look.pid} are in swap, {left} of memory are left"
            return Found(words, {"swapped": size, "free": left})
    return None


def _waits_for_pages(scene: Scene) -> Found | None:
    """Its page faults wait for storage, again and again."""
    for facts in scene.living:
        samples = [look.sample for look in facts.looks if look.sample is not None]
        if len(samples) > 1 and samples[-1].faults > samples[0].faults + 10:
            return Found(f"{samples[-1].faults - samples[0].faults} page faults waited for storage")
    return None


# ---- causes --------------------------------------------------------------------------------------

_ELSEWHERE = "put {path} on another disk: a local one for logs and caches, where there is room"

CAUSES = (
    KnownCause(
        id="filesystem-stuck",
        title="a file system does not answer: it is frozen, or its disk is gone",
        signs=(
            need(_uninterruptible, 0.5),
            also(_file_system_frozen, 0.7, proves=True),
            also(_waits_for_a_disk, 0.45),
            also(_by_path, 0.3),
            also(_in_every_look, 0.25),
            unless(_waits_for_a_file_server),
        ),
        why="{what} does not come back from the kernel: not even SIGKILL ends that process before "
        "the file system answers.",
        avoid=(
            "`findmnt` lists mounts without touching them (df would wait too), `dmesg` says what "
            "is wrong; `fsfreeze -u MOUNTPOINT` if it was frozen for a snapshot",
            _ELSEWHERE,
        ),
        references=("https://man7.org/linux/man-pages/man8/fsfreeze.8.html",),
    ),
    KnownCause(
        id="network-filesystem-silent",
        title="a network file system does not answer",
        signs=(
            need(_waits_for_a_file_server, 0.7, proves=True),
            also(_uninterruptible, 0.35),
            also(_by_path, 0.3),
            also(_no_page_comes, 0.3),
        ),
        why="{what} waits for {service}, and gets no answer. Mounted hard, it waits for ever.",
        avoid=(
            "`findmnt` lists mounts without touching them (df would wait): does that server live?",
            _ELSEWHERE,
            "caches on a local disk: TRITON_CACHE_DIR, WANDB_DIR, HF_HOME",
        ),
        references=(
            "Garden-AI/rootstock#167",
            "NVIDIA/TensorRT-LLM#14655",
            "PrimeIntellect-ai/prime-rl#2305",
        ),
    ),
    KnownCause(
        id="page-fault-crawl",
        title="code or weights come page by page from slow storage",
        signs=(
            need(_faults_page_by_page, 0.6),
            also(_loads_code_or_weights, 0.5),
            unless(_swaps),
        ),
        why="A mapped file is read in pages of 4 KiB, each with a way to storage and back: "
        "{faults} a second, {speed}/s. It goes on, and takes long.",
        avoid=(
            "`cat FILES > /dev/null` of the libraries or weights first: reads them in large pieces",
            "the environment and the weights on a local disk, or in an image of a container",
        ),
        references=(
            "Garden-AI/rootstock#167",
            "sgl-project/sglang#37806",
            "NVIDIA/TensorRT-LLM#14655",
        ),
        outcomes=("slow",),
    ),
    KnownCause(
        id="swapping",
        title="the machine has no memory left and swaps",
        signs=(need(_swaps, 0.65, proves=True), also(_waits_for_pages, 0.5)),
        why="{swapped} of a rank lie in swap and {free} of memory are left: what takes "
        "microseconds in memory takes milliseconds.",
        avoid=(
            "ask for more memory, or load the weights on one rank at a time",
            "fewer workers, a smaller prefetch_factor: slower batches",
        ),
        references=("https://docs.kernel.org/admin-guide/mm/concepts.html",),
        outcomes=("slow",),
    ),
)
