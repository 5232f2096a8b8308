"""The settings of the star, made when they are imported."""

from faults import come_to

come_to("import")
STEPS = 100_000
