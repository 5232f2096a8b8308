"""Stacks and logs that people already have: read, put together, and judged as far as they carry it.

Each format of stacks is read in stack_formats.py. Nothing here looks at a process, and nothing that
a file holds is executed.
"""
