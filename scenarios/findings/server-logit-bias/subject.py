"""Client of mlx_lm.server that completes a text before and after a request with a logit bias."""

import http.client
import json
import os
from urllib.parse import urlsplit


def complete(context, *, token):
    """Emit the status of each of the three requests."""
    first, asked, after = (status_of(bias) for bias in ({}, {token: 1.0}, {}))
    context.emit("answered", first=first, asked=asked, after=after)


def status_of(bias):
    """Status of a completion, or 0 if the connection closed without one."""
    server = urlsplit(os.environ["RANKPROOF_SERVICE_ENGINE"])
    body = json.dumps({"prompt": "a", "max_tokens": 2, "logit_bias": bias})
    connection = http.client.HTTPConnection(server.hostname, server.port, timeout=60)
    try:
        connection.request("POST", "/v1/completions", body)
        return connection.getresponse().status
    except ConnectionError:
        return 0
