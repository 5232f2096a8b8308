"""A run folder read back: whatever lies in it, by whoever it was written."""
