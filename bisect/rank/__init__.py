"""What runs inside a rank: lines, the link to the monitor, walking a pipeline.

Standard library only, so that the first line comes before anything that could hang.
"""
