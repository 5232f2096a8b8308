"""System calls by what a process that is blocked in one waits for."""

from __future__ import annotations


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


SLEEPS = _names("nanosleep clock_nanosleep pause rt_sigtimedwait rt_sigsuspend")
CHILDREN = _names("wait4 waitid vfork")
LOCKS = _names("flock fcntl semop semtimedop")
POLLS = _names("poll ppoll select pselect6 epoll_wait epoll_pwait epoll_pwait2")
OPENS = _names("open openat openat2 creat")
PATHS = _names("""
    mkdir mkdirat stat lstat newfstatat statx access faccessat faccessat2 rename renameat
    renameat2 unlink unlinkat rmdir readlink readlinkat chmod fchmodat chown fchownat link
    linkat symlink symlinkat statfs utimensat execve execveat chdir truncate mount sync
""")
# With a descriptor as the first argument.
TRANSFERS = _names("""
    read pread64 readv preadv preadv2 recvfrom recvmsg recvmmsg getdents64 write pwrite64 writev
    pwritev pwritev2 sendto sendmsg sendmmsg sendfile splice copy_file_range fsync fdatasync
    syncfs ftruncate fallocate fstat fstatfs connect accept accept4 close lseek
""")
# In which a library waits for the other ranks; "": not known.
MEETS = POLLS | SLEEPS | _names("futex recvfrom recvmsg read sched_yield") | {""}
