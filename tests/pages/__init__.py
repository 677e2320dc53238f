"""Pages people look at, rendered by Chromium and measured (`nox -s pages`)."""
