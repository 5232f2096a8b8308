"""The rank side in a script of the user's own: it recognises steps and reports them, and the
script runs as it would without us.
"""
