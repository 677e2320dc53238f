"""The code of the ready subjects, one file each.

A run copies the file into both arms, as it does with a subject of one's own: the evidence holds it, ranks import it
from there by its own name, and whoever reproduces the report compares it. So a file here imports nothing else of the
folder, and of the harness only `harness.tokenizer`, which is a library of its own.
"""
