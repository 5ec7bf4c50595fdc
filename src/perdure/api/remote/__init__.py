"""The Python client over HTTP: the verbs of handles without a connection to the store."""
