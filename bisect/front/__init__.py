"""The process in front of a command: starts it, hands signals on, returns its status.

It stays when everything else of ours fails, so it does nothing else, and imports next to nothing.
Who watches is another process, which may be killed, stopped or out of memory: the command never
notices.
"""
