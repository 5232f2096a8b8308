"""Trials: one launch each, in a process of its own around the launcher, told apart by its verdict.

The search (bisection/) decides which settings to try; here they are tried.
"""
