"""What is a secret in a text: said here alone, for the mask where texts enter a run and for what
is redacted before it leaves. The standard library alone.
"""
