"""Ids of sessions, messages and links, derived by keyed hashes; knows no table and keeps no state.

History is like commits
-----------------------
A git commit is named by a hash over its content and its parent's name. So is a message here: its id hashes the id of
the message before it together with its own digest. From this one idea the rest follows:

* An id names a whole past. Two requests that carry the same id at some position agree on everything up to there.
* Clients resend the entire conversation each turn. Its ids are computed again and only those not stored are new.
* Storing is therefore an insert that ignores what is there already: a retry adds nothing, and no lock is needed.
* If one message is known, all before it are: a message is only ever stored after its parent.
* An edit, an undo or a regenerated answer is a message with the same parent and another id: a branch, for free.
  Nothing is overwritten, so no update can be lost, by one worker or by fifty.
* The alternative answers of one request are siblings; which of them counts is said by the client's next request.
* The chain starts after the preamble. System prompts often hold a clock; if they were in the chain, each turn would
  start a new history. A request refers to its preamble instead.
* Ids are keyed with a secret of the session, so equal conversations of two sessions share no id and nobody who
  knows a text can look for it in the ids.

Links are the same chain under a secret of the tenant: where no session key was sent, they find the session by its past.
"""

from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b

ID_BYTES = 16
SECRET_BYTES = 32


@lru_cache(maxsize=16)
def _hasher(secret: bytes, purpose: bytes, size: int) -> blake2b:
    """Return what is copied for each hash under a secret of long standing: setting up takes as long as hashing."""
    return blake2b(key=secret, person=purpose, digest_size=size)


def _keyed(secret: bytes, purpose: bytes, fields: Iterable[str | bytes | None], size: int) -> bytes:
    """Hash fields under a secret; each is marked and measured, so that no two lists of fields look the same."""
    parts = []
    for value in fields:
        if value is None:
            parts.append(b"-")
            continue
        raw = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
        parts.append(b"%d:%b" % (len(raw), raw))
    hasher = _hasher(secret, purpose, size).copy()
    hasher.update(b"".join(parts))
    return hasher.digest()


def session_id(secret: bytes, tenant: str, source: str, bearer: str | None, key: str) -> bytes:
    """Return the 16-byte id of the session that a tenant's client names `key`.

    `source` says where the key came from (header, body, match, …); `bearer` only where sessions belong to the client's
    own upstream key. A session opened without a key gets a random one from the caller.
    """
    return _keyed(secret, b"session", (tenant, source, bearer, key), ID_BYTES)


def session_secret(secret: bytes, session: bytes) -> bytes:
    """Return the 32-byte secret under which a session's messages are named."""
    return _keyed(secret, b"session-secret", (session,), SECRET_BYTES)


def tenant_secret(secret: bytes, tenant: str, bearer: str | None = None, user: str | None = None) -> bytes:
    """Return the 32-byte secret under which the links of a tenant (and bearer, and user) are made."""
    return _keyed(secret, b"tenant-secret", (tenant, bearer, user), SECRET_BYTES)


def user_hash(secret: bytes, tenant: str, user: str) -> bytes:
    """Return the 16-byte mark by which a person's sessions are found again for erasure."""
    return _keyed(secret, b"user", (tenant, user), ID_BYTES)


def key_hash(secret: bytes, tenant: str, key: str) -> bytes:
    """Return the 16-byte mark by which a session is found by its exact key; the key itself is never stored."""
    return _keyed(secret, b"session-key", (tenant, key), ID_BYTES)


def turn_mark(secret: bytes, key: bytes) -> bytes:
    """Return the 16-byte mark of a turn that its client names `key`, under its session's secret."""
    return _keyed(secret, b"turn", (key,), ID_BYTES)


def preamble_id(secret: bytes, digests: Iterable[bytes]) -> bytes:
    """Return the 16-byte id of a preamble under its session's secret, from the digests of its messages."""
    return blake2b(b"".join(digests), key=secret, person=b"preamble", digest_size=ID_BYTES).digest()


def message_id(secret: bytes, parent: bytes | None, digest: bytes) -> bytes:
    """Return the 16-byte id of the message with this digest after `parent`, under its session's secret."""
    return blake2b((parent or b"") + digest, key=secret, digest_size=ID_BYTES).digest()


def chain(secret: bytes, digests: Iterable[bytes], parent: bytes | None = None) -> list[bytes]:
    """Return the ids of consecutive messages, the first of them after `parent`."""
    keyed = blake2b(key=secret, digest_size=ID_BYTES)
    ids = []
    last = parent or b""
    for digest in digests:
        hasher = keyed.copy()
        hasher.update(last + digest)
        last = hasher.digest()
        ids.append(last)
    return ids


def link(secret: bytes, previous: bytes | None, digest: bytes) -> bytes:
    """Return the 16-byte link at the message with this digest after `previous`, under a tenant's secret."""
    return message_id(secret, previous, digest)
