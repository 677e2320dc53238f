"""Defects and clean runs of the ready subjects by the hundred: `python -m tests.ladder` prints what
was seen.

Not a test: an hour of worlds. It prints the table of docs/inference.md.
"""
