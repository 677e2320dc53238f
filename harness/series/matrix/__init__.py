"""The detection matrix: every kind of fault against the checks that have to see it, on every backend."""
