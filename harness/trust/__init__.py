"""Signing a report, and checking one: the only room that calls ssh-keygen."""
