"""Client of OpenAI's API, as a subject: every rank asks a running server.

Nothing is asked twice, followed or repaired. `exchange` sends a request and takes bytes, `reply`
reads strictly what they say, and `ask` plans the requests and reports what came.
"""
