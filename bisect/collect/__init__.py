"""What the watch and `attach` collect in the same way: looks at the ranks of a job, one after
another, and which ranks move, wait or hang as far as these tell.
"""
