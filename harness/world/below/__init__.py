"""Processes below the harness: the warden, the fork server, the keeper of each world, and how a
rank starts.
"""
