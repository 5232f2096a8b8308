"""The steps of the pipeline `generation`, an idea a module."""
