"""Machines that are reached over a channel: the agent that runs there, and this end of the
channel.
"""
