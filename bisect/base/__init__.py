"""What every part may use: facts, words, identity of ranks and launchers, settings, files.

Imports nothing of ours, and the standard library only: a rank loads parts of it.
"""
