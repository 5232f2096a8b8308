"""Outside the ranks: arrivals and clocks, looks, the verdict, the ending of a job, the run folder.

One asyncio process a node (watch.py). It alone ends processes (ending.py), and it alone writes in
the run folder (run_folder.py).
"""
