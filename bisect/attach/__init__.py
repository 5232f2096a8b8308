"""The job that hangs right now: which processes are its ranks, does it move, and if not, why.

Nothing of it runs inside the job. What is found here is judged by the same diagnosis as a job that
was watched from its start.
"""
