"""Trials: one launch each, in a process of its own around the launcher, judged by its verdict.

The search (search/) decides which settings to try; the modules here try them.
"""
