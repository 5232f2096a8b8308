"""The settings of the programs, made when they are imported."""

from faults import come_to

come_to("import")
STEPS = 100_000
BATCHES = 4
