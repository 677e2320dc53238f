"""A plug-in for Rankproof: the fault `hold-memory` and the check `increasing`."""
