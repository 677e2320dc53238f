"""Client of mlx_lm.server that completes a text before and after another prompt."""

import http.client
import json
import os
from urllib.parse import urlsplit


def complete(context, *, prompt):
    """Emit the status of each of the three requests."""
    first, asked, after = (status_of(each) for each in ("a", prompt, "a"))
    context.emit("answered", first=first, asked=asked, after=after)


def status_of(prompt):
    """Status of a completion, or 0 if the connection closed without one."""
    server = urlsplit(os.environ["RANKPROOF_SERVICE_ENGINE"])
    body = json.dumps({"prompt": prompt, "max_tokens": 2})
    connection = http.client.HTTPConnection(server.hostname, server.port, timeout=60)
    try:
        connection.request("POST", "/v1/completions", body)
        return connection.getresponse().status
    except ConnectionError:
        return 0
