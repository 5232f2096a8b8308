"""Before anything hangs: what of this machine and this environment would make a job hang.

A family of checks a file, or two that go together. Each check has a part that reads the machine,
within a time limit, and a part that judges what was read, which is pure. Nothing is changed: no
file written, no signal sent, no process left.
"""
