"""The HTTP face of the engine: one file per resource, each a table of operations that routing and OpenAPI both read."""

from penstock.api.app import create_app

__all__ = ["create_app"]
