"""`GET /v1/models` and `/v1/models/{id}`: the configured models a tenant may use, in OpenAI's shape."""

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response

from transom.proxy.auth import identify
from transom.proxy.config.settings import Settings
from transom.proxy.endpoints.answer import json_response
from transom.proxy.errors import ModelNotAllowed, ModelNotFound

CREATED = 0  # seconds; configured models have no birthday


class Models:
    """The two endpoints."""

    def __init__(self, settings: Callable[[], Settings]) -> None:
        self._settings = settings

    async def list(self, request: Request) -> Response:
        """List the models."""
        tenant, _ = identify(request.scope, self._settings())
        return json_response({"object": "list", "data": [_entry(name) for name in tenant.model_names()]})

    async def one(self, request: Request) -> Response:
        """Return one model; a name that `"*"` passes through is one as well."""
        tenant, _ = identify(request.scope, self._settings())
        name = request.path_params["name"]
        try:
            tenant.route(name)
        except ModelNotAllowed:
            raise ModelNotFound(name) from None
        return json_response(_entry(name))


def _entry(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": CREATED, "owned_by": "transom"}
