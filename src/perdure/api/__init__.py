"""The HTTP API: the verbs of the client over HTTP, for programs in other languages, dashboards and people."""
