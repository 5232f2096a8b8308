"""The search for the smallest change that makes a hang go away. Nothing in this folder starts or
looks at a process.
"""
