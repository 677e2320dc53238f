"""Code that runs inside a rank process: its context, emitting events, starting the subject,
reporting how it ended.
"""
