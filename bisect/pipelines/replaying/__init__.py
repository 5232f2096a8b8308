"""The steps of the pipeline `replay`."""
