"""`transom keys new`: a key for a tenant and its hash; nothing is stored."""

import secrets
import sys

import msgspec

from transom.proxy.config.schema import hash_key


def new_key() -> str:
    """Return a new key: `tsm-` and 43 characters from 256 random bits."""
    return f"tsm-{secrets.token_urlsafe(32)}"


def print_new_key(*, as_json: bool) -> None:
    """Print a new key and its hash."""
    key = new_key()
    if as_json:
        sys.stdout.write(msgspec.json.encode({"key": key, "hash": hash_key(key)}).decode() + "\n")
        return
    sys.stdout.write(
        f"key:  {key}\nhash: {hash_key(key)}\n\n"
        "Give the key to the client; put the hash under tenants.NAME.keys in the configuration. "
        "The key is shown only now.\n"
    )
