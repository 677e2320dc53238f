"""Rankproof: a validation harness for distributed LLM inference.

Where a comment says `rule 12`, it is one of the rules of evidence in docs/architecture.md.
"""

__version__ = "0.1.0"
