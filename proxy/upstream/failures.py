"""What exceptions mean on the way to a model's server, as this proxy's errors; it keeps none of their texts.

They would tell addresses, and their frames hold requests and keys.
"""

import errno
import os
import socket
import ssl

from transom.proxy.errors import Overloaded, TransomError, UpstreamUnreachable

__all__ = ["let_go", "meaning"]

NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})
NO_NAME = "The name of the model's server could not be resolved."
NO_TLS = "No secure connection to the model's server came about; check TLS and certificates."


def meaning(raised: OSError | ValueError) -> tuple[TransomError, str]:
    """Return what kept a connection from coming about, as an error and as a reason for the operator's log.

    The reason is the system's words or ours.
    """
    if isinstance(raised, OSError) and raised.errno in NO_DESCRIPTORS:
        error: TransomError = Overloaded("The proxy has no free connections.")
    elif isinstance(raised, socket.gaierror | UnicodeError):
        error = UpstreamUnreachable(NO_NAME)
    elif isinstance(raised, ssl.SSLError | ssl.CertificateError):
        error = UpstreamUnreachable(NO_TLS)
    else:
        error = UpstreamUnreachable()
        if isinstance(raised, OSError) and raised.errno is not None:
            return error, os.strerror(raised.errno)
    return error, error.message


def let_go(error: BaseException | None) -> None:
    """Take the traces from an exception and what led to it: their frames hold the request, and the exception again."""
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__
