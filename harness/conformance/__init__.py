"""Conformance: what a served engine does with each promise of an OpenAI-compatible server.

A row asks for one promise and judges the answers. Its control is a proxy that breaks this promise.
"""
