"""Rankproof: a validation harness for distributed LLM inference."""

__version__ = "0.1.0"
