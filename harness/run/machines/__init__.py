"""Runs whose ranks are on several machines: which they are, whether they are ready, and what is
collected there.
"""
