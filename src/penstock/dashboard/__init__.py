"""The page: what waits, why, and what to do about it, in a browser at `/ui/` of every server.

`page` holds its sources, `built` what `make page` makes of them. It uses the API as any other client does.
"""

from penstock.dashboard.page_app import PageApp

__all__ = ["PageApp"]
