"""A subject that stops its process while it is imported."""

import os
import signal

os.kill(os.getpid(), signal.SIGSTOP)


def go(context):
    """Never reached."""
