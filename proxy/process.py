"""Runs the application in one process: uvicorn with uvloop and httptools, signals and draining.

Does not know what the application does; the application learns through `Drain` when to come to an end.
"""

import asyncio
import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import Protocol

import structlog
import uvicorn
import uvloop
from starlette.types import ASGIApp

from transom.proxy.connection import BoundedConfig, Bounds, Connection
from transom.proxy.drain import Drain
from transom.proxy.garbage import Garbage

STARTUP_FAILED = 1
_EXPIRED_GRACE_S = 2.0
_LIFESPAN_S = 10.0
_FORCED_S = 3.0
_BACKLOG = 2048


class Application(Protocol):
    """What is served: the application, and the one for `admin_port` if there is such a port."""

    @property
    def app(self) -> ASGIApp: ...

    @property
    def admin_app(self) -> ASGIApp | None: ...


Assemble = Callable[[Drain], Application]


@dataclass(frozen=True, slots=True)
class Listen:
    """Where and within which bounds to serve, and what to call once requests are answered.

    Times in seconds; an `admin_port` of None shares the main port.
    """

    host: str
    port: int
    bounds: Bounds
    admin_port: int | None = None
    drain_s: float = 30
    sockets: list[socket.socket] = field(default_factory=list)
    on_start: Callable[[], object] = lambda: None

    def open(self) -> None:
        """Bind the main socket and, if wanted, the one for the admin application. Raises OSError."""
        for port in [self.port] if self.admin_port is None else [self.port, self.admin_port]:
            family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
            self.sockets.append(socket.create_server((self.host, port), family=family, backlog=_BACKLOG))

    def close(self) -> None:
        """Close what was opened."""
        for listener in self.sockets:
            listener.close()


class Server(uvicorn.Server):
    """uvicorn's server with connection deadlines, and a drain that SIGTERM or SIGINT begins and a second one forces."""

    config: BoundedConfig

    def __init__(
        self,
        config: BoundedConfig,
        drain: Drain,
        drain_s: float,
        admin: BoundedConfig | None,
        supervised: bool,
        on_start: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__(config)
        self._drain = drain
        self._drain_s = drain_s
        self._on_start = on_start
        self._garbage = Garbage()
        self._served = 0  # requests, as of the last tick
        self._admin = uvicorn.Server(admin) if admin else None
        self._supervisor = os.getppid() if supervised else None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application, then listen on the first socket, and on the second for the admin application."""
        main, *rest = sockets or []
        await super().startup(sockets=[main])
        if self._admin:
            self._admin.config.load()
            self._admin.lifespan = self._admin.config.lifespan_class(self._admin.config)
            await self._admin.startup(sockets=rest)
        self._garbage.begin(time.monotonic())
        if self.started:
            self._on_start()

    async def on_tick(self, counter: int) -> bool:
        """Close what is overdue, and free what hangs in cycles; called ten times a second."""
        self._sweep()
        served, self._served = self._served, self.server_state.total_requests
        busy = bool(self.server_state.tasks) or served != self._served
        self._garbage.tick(time.monotonic(), busy=busy)
        if self._admin:
            await self._admin.on_tick(counter)
        orphaned = self._supervisor is not None and os.getppid() != self._supervisor
        return await super().on_tick(counter) or orphaned

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to drain; at the second signal end at once, whatever still hangs."""
        if self.should_exit:
            self.force_exit = True
            logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # it complains about what is cut off
            hard = threading.Timer(_FORCED_S, os._exit, (128 + sig,))
            hard.daemon = True
            hard.start()
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting, let requests finish for `drain_s`, then tell the rest to end, then end them."""
        self._drain.draining = True
        structlog.get_logger().info("draining", requests=len(self.server_state.tasks))
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        await self._settle(self._drain_s)
        if self.server_state.tasks:
            self._drain.expired.set()
            await self._settle(_EXPIRED_GRACE_S)
        await self._end_rest()
        self._garbage.end()
        structlog.get_logger().info("stopped")

    async def _settle(self, seconds: float) -> None:
        """Wait until all requests and connections have ended, at most `seconds`, and hardly at all if forced."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while (self.server_state.tasks or self.server_state.connections) and loop.time() < end:
            self._sweep()
            await asyncio.sleep(0.05)
            if self.force_exit:
                return

    async def _end_rest(self) -> None:
        states = [self.server_state, *([self._admin.server_state] if self._admin else [])]
        for state in states:
            for task in state.tasks:
                task.cancel()
            for connection in list(state.connections):
                if isinstance(connection, Connection) and connection.transport is not None:
                    connection.transport.close()
        for server in self._admin.servers if self._admin else []:
            server.close()
        await asyncio.sleep(0)
        if not self.force_exit:
            try:
                await asyncio.wait_for(self.lifespan.shutdown(), _LIFESPAN_S)
            except TimeoutError:
                structlog.get_logger().error("the application did not stop in time", seconds=_LIFESPAN_S)

    def _sweep(self) -> None:
        now = asyncio.get_running_loop().time()
        for state in [self.server_state, *([self._admin.server_state] if self._admin else [])]:
            for connection in list(state.connections):
                if isinstance(connection, Connection):
                    connection.sweep(now)


def configure(app: ASGIApp, bounds: Bounds, lifespan: bool) -> BoundedConfig:
    """Return uvicorn's configuration: uvloop, httptools, no access log, no server header, no trust in forwarding."""
    config = BoundedConfig(
        app,
        http=Connection,
        ws="none",
        interface="asgi3",
        lifespan="on" if lifespan else "off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
    )
    config.bounds = bounds
    return config


def run(assemble: Assemble, listen: Listen, supervised: bool = False) -> int:
    """Serve one process's share on already open sockets until a signal; return its exit code."""
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    drain = Drain()
    application = assemble(drain)
    main = configure(application.app, listen.bounds, lifespan=True)
    admin = None
    if application.admin_app is not None and len(listen.sockets) > 1:
        admin = configure(application.admin_app, listen.bounds, lifespan=False)
    server = Server(main, drain, listen.drain_s, admin, supervised, listen.on_start)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(server.serve(sockets=listen.sockets))
    except SystemExit:  # uvicorn's way of saying that the application did not start
        return STARTUP_FAILED
    return 0
