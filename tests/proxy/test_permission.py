"""No spelling of a path leads past the rules: conversations are windowed, a tenant reaches what its entry names."""

from types import SimpleNamespace
from typing import cast

import pytest

from transom.proxy.config.settings import Tenant
from transom.proxy.endpoints.permission import endpoint
from transom.proxy.errors import NotWindowed, UnknownUrl


def tenant(relay: object) -> Tenant:
    return cast("Tenant", SimpleNamespace(relay=relay))


@pytest.mark.parametrize(
    "path",
    [
        "responses",
        "Responses",
        "MESSAGES",
        "Chat/Completions",
        "deployments/m/chat/completions",
        "engines/m/CHAT/completions",
    ],
)
def test_no_conversation_passes_without_a_window(path: str) -> None:
    with pytest.raises(NotWindowed):
        endpoint("POST", f"/v1/{path}", tenant("all"), own_key=True)


@pytest.mark.parametrize("path", ["files/..;/batches", "files/.;/x", "files/..;x", "responses;x", "chat;x/completions"])
def test_parameters_of_a_segment_are_no_part_of_this_api(path: str) -> None:
    for method in ("GET", "POST"):
        with pytest.raises(UnknownUrl):
            endpoint(method, f"/v1/{path}", tenant(["files"]), own_key=False)
