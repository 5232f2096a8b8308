"""What the monitors of a job's nodes say to each other: an authenticated star of TCP around the one
that leads. Nothing here watches or judges; whatever fails, each node is where it was without it.
"""
