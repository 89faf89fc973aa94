"""The bodies of HTTP requests and responses, one file per resource, shared by API, client, CLI and workers."""
