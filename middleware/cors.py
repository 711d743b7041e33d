"""Lets the web pages of configured origins call the API from a browser; everyone else's requests pass untouched."""

from collections.abc import Sequence

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


class Cors:
    """Answer preflights and add the headers that browsers ask for (Fetch, "CORS protocol"), under `prefix` only.

    Keys come in headers that pages set themselves, so no credentials of the browser's own are allowed. The origins may
    be changed at any time (a reload); without any, requests take the way they would take without this layer.
    """

    def __init__(self, app: ASGIApp, origins: Sequence[str] = (), prefix: str = "/v1/") -> None:
        self._app = app
        self._prefix = prefix
        self.allow(origins)

    def allow(self, origins: Sequence[str]) -> None:
        """Replace the origins that may call, each as a browser sends it; `*` is any."""
        self._for_pages = (
            CORSMiddleware(
                self._app,
                allow_origins=origins,
                allow_methods=METHODS,
                allow_headers=("*",),
                allow_private_network=True,
                expose_headers=("*",),
            )
            if origins
            else None
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._for_pages is not None and scope["type"] == "http" and scope["path"].startswith(self._prefix):
            await self._for_pages(scope, receive, send)
        else:
            await self._app(scope, receive, send)
