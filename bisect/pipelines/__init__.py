"""The pipelines: each a table of steps, and the steps. base/pipeline.py finds them by name."""
