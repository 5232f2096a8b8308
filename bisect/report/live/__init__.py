"""The table of ranks below the lines while a job runs, in the last rows of its terminal.

The ranks write to the terminal themselves, from many processes, and so does whatever they call. So
nobody passes their output on: the terminal itself is told to scroll above the table (`region.py`),
and one process, the drawer, writes the rows below (`drawer.py`). Whatever holds the drawer up holds
up nobody else.
"""
