"""Holds the settings in force and renews them when the files change or SIGHUP comes; it does not know who uses them."""

import asyncio
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import Literal

import structlog

from transom.proxy.config.load import ConfigError, included_files
from transom.proxy.config.review import review
from transom.proxy.config.schema import Config
from transom.proxy.config.settings import Settings, compile_settings
from transom.proxy.logs import describe

log = structlog.get_logger()

Outcome = Literal["applied", "rejected"]

RESTART_KEYS = {
    "server": ("host", "port", "admin_port", "workers", "drain_s"),
    "storage": ("url", "synchronous"),
    "limits": ("header_s", "body_s", "idle_s"),
}
"""What takes effect at the next start only."""

POLL_S = 1.0
"""How often the files are compared with what was read: hardly any work, and right on every file system."""


class LiveSettings:
    """The settings in force: read `current` once per request and keep what it was.

    Args:
        read: makes a Config anew, or raises ConfigError.
        path: the file behind it, or None where there is none and so nothing to watch.

    `counted`, where set, is told the outcome of every reload. Raises ConfigError where the first reading fails.
    """

    def __init__(self, read: Callable[[], Config], *, path: Path | None = None) -> None:
        self.path = path
        self.counted: Callable[[Outcome], object] | None = None
        self._read = read
        self._reloading = Lock()
        self._seen: dict[Path, bytes] = {}
        self._current = self._compile(())
        self._started_with = self._current.config

    @property
    def current(self) -> Settings:
        """The settings of a request that begins now."""
        return self._current

    def reload(self) -> bool:
        """Read anew and swap the settings at once if they are valid; else log why and keep the old ones."""
        with self._reloading:
            try:
                settings = self._compile(self._current.config.include)
            except ConfigError as error:
                log.error("configuration rejected, the old one stays", faults=[str(fault) for fault in error.faults])
                self._count("rejected")
                return False
            except Exception as fault:  # noqa: BLE001  whatever a file makes of its reader, the next one must be read
                log.error("configuration rejected, the old one stays", faults=[describe(fault)])
                self._count("rejected")
                return False
            self._current = settings
        log.info(
            "configuration applied",
            takes_restart=list(_changed(self._started_with, settings.config)),
            warnings=list(review(settings).warnings),
        )
        self._count("applied")
        return True

    def reload_if_changed(self) -> bool:
        """Reload if a file differs from what was last read, valid or not; tell whether that was so."""
        if self.path is None or self._contents(self._current.config.include) == self._seen:
            return False
        self.reload()
        return True

    def _compile(self, known_includes: Iterable[str]) -> Settings:
        # The contents are noted before the files are read, so that a change meanwhile is noticed later.
        self._seen = self._contents(known_includes)
        settings = compile_settings(self._read())
        now = self._contents(settings.config.include)
        self._seen = {file: self._seen.get(file, content) for file, content in now.items()}
        return settings

    def _contents(self, includes: Iterable[str]) -> dict[Path, bytes]:
        if self.path is None:
            return {}
        return {file: _digest(file) for file in (self.path, *included_files(self.path, list(includes)))}

    def _count(self, outcome: Outcome) -> None:
        if self.counted is not None:
            self.counted(outcome)


def _digest(file: Path) -> bytes:
    try:
        return blake2b(file.read_bytes(), digest_size=16).digest()
    except OSError:
        return b""


def _changed(before: Config, after: Config) -> Iterable[str]:
    for section, keys in RESTART_KEYS.items():
        for key in keys:
            if getattr(getattr(before, section), key) != getattr(getattr(after, section), key):
                yield f"{section}.{key}"


async def watch(live: LiveSettings, stop: asyncio.Event) -> None:
    """Reload when a file of the configuration changes and at SIGHUP, until `stop` is set or this task is cancelled.

    Contents are compared, found by name each time: editors and Kubernetes' ConfigMaps put a new file or link in the
    place of the old one, and network file systems report no changes. SIGHUP is heard in the main thread's event loop
    only.
    """
    hangup = asyncio.Event()
    loop = asyncio.get_running_loop()
    with suppress(ValueError, RuntimeError):
        loop.add_signal_handler(signal.SIGHUP, hangup.set)
    tasks = [asyncio.create_task(_on_hangup(live, hangup)), asyncio.create_task(_on_change(live))]
    try:
        await stop.wait()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with suppress(ValueError, RuntimeError):
            loop.remove_signal_handler(signal.SIGHUP)


async def _on_hangup(live: LiveSettings, hangup: asyncio.Event) -> None:
    while True:
        await hangup.wait()
        hangup.clear()
        await asyncio.to_thread(live.reload)


async def _on_change(live: LiveSettings) -> None:
    while live.path is not None:
        await asyncio.sleep(POLL_S)
        await asyncio.to_thread(live.reload_if_changed)
