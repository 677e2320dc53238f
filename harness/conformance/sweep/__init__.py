"""A sweep over served engines: the conformance of each release in each mode, and what they share."""
