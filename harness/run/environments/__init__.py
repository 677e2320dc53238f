"""Environments of their own for arms: interpreters found, packages installed, the result kept in a
cache.
"""
