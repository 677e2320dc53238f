"""Test hosts, and the wire between them."""
