"""Worlds in the harness's own process: it starts servers and worlds, watches their ranks, and stops
them.
"""
