"""What people and programs read, made from facts: verdicts, stacks and reports as text, JSON and
HTML; the .zip for an issue; the live table.
"""
