"""A job on several machines: each is asked for its facts, side by side, and they are judged as one.

A machine is asked by the means that reach it (a step of Slurm's, ssh, kubectl), with a time limit.
What does not answer is reported, with the command to paste there; the others are used.
"""
