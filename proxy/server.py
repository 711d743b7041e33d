"""Serves the configured application: sockets, limits of the machine, one process or several.

Does not know what is served, nor what the application does.
"""

import os
import resource
from dataclasses import replace

import structlog

from transom.proxy.app import build
from transom.proxy.config.watch import LiveSettings
from transom.proxy.connection import Bounds
from transom.proxy.drain import Drain
from transom.proxy.process import STARTUP_FAILED, Application, Listen, run
from transom.proxy.workers import run_workers

_SPARE_DESCRIPTORS = 64


def descriptor_limit() -> int:
    """Raise this process's limit of open files as far as it may, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = hard if hard != resource.RLIM_INFINITY else 1_048_576
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return soft


def serve(live: LiveSettings, *, host: str, port: int, workers: int = 1) -> int:
    """Serve the configured application until SIGTERM or SIGINT; return 0, or 1 if it could not start.

    `host` and `port` override the configuration's. Changes of `server` and of the connection bounds take a restart.
    """
    config = live.current.config
    # Half of the files for clients, half for upstreams.
    connections = max(16, (descriptor_limit() - _SPARE_DESCRIPTORS) // 2)
    limits = config.limits
    bounds = Bounds(limits.header_s, limits.body_s, limits.idle_s, connections=connections)
    listen = Listen(host, port, bounds, config.server.admin_port, config.server.drain_s)
    logger = structlog.get_logger()
    try:
        listen.open()
    except OSError as error:
        logger.error(
            "cannot listen", host=host, port=port, admin_port=listen.admin_port, reason=os.strerror(error.errno or 0)
        )
        listen.close()
        return STARTUP_FAILED
    announcement = Announcement(f"http://{host}:{listen.sockets[0].getsockname()[1]}", workers)
    listen = replace(listen, on_start=announcement.make)

    def assemble(drain: Drain) -> Application:
        return build(live, drain)

    try:
        return run(assemble, listen) if workers == 1 else run_workers(assemble, listen, workers)
    finally:
        announcement.close()


class Announcement:
    """Logs where the server listens, once: when the first of its processes answers requests.

    The processes share a pipe with one byte in it; whoever takes it logs.
    """

    def __init__(self, url: str, workers: int) -> None:
        self._url, self._workers = url, workers
        self._token, end = os.pipe()
        os.write(end, b"1")
        os.close(end)

    def make(self) -> None:
        """Log, unless some process did."""
        if os.read(self._token, 1):
            structlog.get_logger().info("listening", url=self._url, workers=self._workers)

    def close(self) -> None:
        """Give the pipe back."""
        os.close(self._token)
