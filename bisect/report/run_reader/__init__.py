"""A run folder read back: nothing in it is trusted, whoever wrote it."""
