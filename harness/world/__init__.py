"""Real ranks: fork server, warm and fresh start, backends (one file each), supervision, reaping,
the event channel.
"""
