"""mlx_lm.server as a child of the rank, which asks it before and after a logit bias.

It is not a service of the scenario: a control whose service ends by itself does not count.
"""

import http.client
import json
import socket
import subprocess
import sys
import time


def complete(context, *, token):
    """Emit the status of each of the three requests."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlx_lm", "server", "--port", str(port)]
    command += ["--model", str(context.inputs["model"])]
    server = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        while not status_of(port, {}) and server.poll() is None:
            time.sleep(0.5)
        first, asked, after = (status_of(port, bias) for bias in ({}, {token: 1.0}, {}))
    finally:
        server.kill()
        server.wait()
    context.emit("answered", first=first, asked=asked, after=after, signal=-server.returncode)


def status_of(port, bias):
    """Status of a completion, or 0 if nothing listens or the connection closed without one."""
    body = json.dumps({"prompt": "a", "max_tokens": 2, "logit_bias": bias})
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST", "/v1/completions", body)
        return connection.getresponse().status
    except ConnectionError:
        return 0
