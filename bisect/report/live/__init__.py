"""The table of ranks below the lines while a job runs, in the last rows of its terminal.

The ranks write to the terminal themselves, from many processes, and so do the programs that they
start. So no process passes their output on: the terminal itself is told to scroll above the
table (`screen.py`), and one process, the drawer, writes the rows below (`drawer.py`). What holds
up the drawer holds up no other process.
"""
