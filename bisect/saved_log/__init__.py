"""Logs that were saved of a job: what stands in front of their lines, and what we printed."""
