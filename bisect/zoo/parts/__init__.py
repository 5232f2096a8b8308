"""Building blocks of cases: servers that do not answer, locks that others hold, frozen mounts.

Each is a context manager for a case's `stage`, and undoes itself: also after Ctrl-C, and when the
program that runs the case is killed, for its helper processes read a pipe whose other end only
that program has. They run outside the job; nothing of them is ever on a rank's stack.
"""
