"""Asks a server for `/healthz` over and over: how long it does not answer is how long its event loop was busy.

`python -m bench.probe HOST PORT` prints a line once it is connected, asks until its standard input ends, and prints
the milliseconds of the slowest answer and of the slowest in a thousand. It is a process of its own, so that a busy
load generator does not look like a busy server.
"""

import http.client
import select
import sys
import time

EVERY_S = 0.003  # a blocked loop looks shorter by at most this much


def asked(connection: http.client.HTTPConnection) -> float:
    """Ask once and return the milliseconds; nought if the connection was closed, which is then opened anew."""
    started = time.perf_counter()
    try:
        connection.request("GET", "/healthz")
        connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        connection.close()
        return 0.0
    return (time.perf_counter() - started) * 1000


def main() -> None:
    """Run until the standard input ends."""
    connection = http.client.HTTPConnection(sys.argv[1], int(sys.argv[2]), timeout=60)
    took = [asked(connection)]
    sys.stdout.write("asking\n")
    sys.stdout.flush()
    while not select.select([sys.stdin], [], [], EVERY_S)[0]:
        took.append(asked(connection))
    took.sort()
    sys.stdout.write(f"{took[-1]:.3f} {took[len(took) * 999 // 1000]:.3f}\n")


if __name__ == "__main__":
    main()
