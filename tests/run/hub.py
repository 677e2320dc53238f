"""A hub on loopback that serves one repository: enough of the protocol for `snapshot_download`."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

COMMIT = "c0ffee" + "0" * 34


@contextmanager
def serve(model: str, folder: Path) -> Iterator[str]:
    """Serve the files of `folder` as revision `main` of `model`; yields the endpoint."""
    files = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def log_message(self, *_: object) -> None:
            pass

        def _answer(self, *, body: bool) -> None:
            path = unquote(urlsplit(self.path).path)
            if path.startswith(f"/api/models/{model}/revision/"):
                siblings = [{"rfilename": name} for name in sorted(files)]
                self._send(
                    json.dumps({"id": model, "sha": COMMIT, "siblings": siblings}).encode(),
                    body=body,
                )
            elif path.startswith(f"/api/models/{model}/tree/"):
                entries = [
                    {
                        "type": "file",
                        "path": name,
                        "size": len(data),
                        "oid": hashlib.sha256(data).hexdigest(),
                    }
                    for name, data in sorted(files.items())
                ]
                self._send(json.dumps(entries).encode(), body=body)
            elif path.startswith(f"/{model}/resolve/") and (name := path.split("/", 5)[5]) in files:
                self._send(files[name], body=body)
            else:
                self._send(b"{}", body=body, status=404)

        def _send(self, data: bytes, *, body: bool, status: int = 200) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.send_header("ETag", f'"{hashlib.sha256(data).hexdigest()}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.end_headers()
            if body:
                self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
