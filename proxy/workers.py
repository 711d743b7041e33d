"""Keeps several worker processes running on one set of listening sockets; does not know what they serve."""

import os
import shutil
import signal
import tempfile
from collections.abc import Callable

import structlog
from prometheus_client import multiprocess, values

from transom.proxy import logs
from transom.proxy.process import STARTUP_FAILED, Assemble, Listen, run

_WATCHED = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD}
_REAP_S = 1.0


class Supervisor:
    """Forks workers, replaces those that die, and passes signals on.

    `work` runs in each worker and returns its exit code; `lost` is told the process id of each worker that ended;
    `stop` is called when no further worker will be started. If one of the first workers cannot start, the server ends
    with its code: the others would fail too. The start of a replacement is tried again, a moment later: what it lacks,
    the others may be able to do without for a while.
    """

    def __init__(self, work: Callable[[], int], lost: Callable[[int], object], stop: Callable[[], None]) -> None:
        self._work = work
        self._lost = lost
        self._stop = stop
        self._running: set[int] = set()
        self._replacements: set[int] = set()
        self._missing = 0  # workers to be started when the moment has passed
        self._stopping = False
        self._code = 0

    def run(self, workers: int) -> int:
        """Run until a signal has ended all workers; return 0, or STARTUP_FAILED when one could not start."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
        try:
            for _ in range(workers):
                self._fork()
            while self._running or self._missing:
                self._handle(signal.sigtimedwait(_WATCHED, _REAP_S))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return self._code

    def _fork(self, *, replacement: bool = False) -> None:
        pid = os.fork()
        if pid:
            self._running.add(pid)
            if replacement:
                self._replacements.add(pid)
            return
        code = 1
        try:
            os.setpgid(0, 0)  # a terminal's Ctrl-C reaches a worker once, through its parent
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _WATCHED)
            code = self._work()
        finally:
            logs.flush()
            os._exit(code)

    def _handle(self, signalled: signal.struct_siginfo | None) -> None:
        if signalled is None:
            self._reap()
            self._replace()
        elif signalled.si_signo == signal.SIGCHLD:
            self._reap()
        elif signalled.si_signo == signal.SIGHUP:
            self._tell(signal.SIGHUP)
        else:
            self._end()

    def _replace(self) -> None:
        while self._missing:
            self._missing -= 1
            self._fork(replacement=True)

    def _end(self) -> None:
        self._stopping, self._missing = True, 0
        self._stop()
        self._tell(signal.SIGTERM)

    def _tell(self, number: int) -> None:
        for pid in self._running:
            os.kill(pid, number)

    def _reap(self) -> None:
        for pid in list(self._running):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if not ended:
                continue
            self._running.discard(pid)
            self._lost(pid)
            replacement = pid in self._replacements
            self._replacements.discard(pid)
            if self._stopping:
                continue
            code = os.waitstatus_to_exitcode(status)
            structlog.get_logger().error("worker ended", pid=pid, code=code)
            if code != STARTUP_FAILED:
                self._fork(replacement=True)
            elif replacement:
                self._missing += 1
            else:
                self._code = code
                self._end()


def run_workers(assemble: Assemble, listen: Listen, workers: int) -> int:
    """Serve with several processes on the same sockets, with one set of metrics; return the exit code."""
    folder = tempfile.mkdtemp(prefix="transom-metrics-")
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
    # The library chose its kind of values when it was imported, which may have been before the folder was known.
    values.ValueClass = values.get_value_class()  # type: ignore[no-untyped-call]
    try:
        return Supervisor(
            lambda: run(assemble, listen, supervised=True), multiprocess.mark_process_dead, listen.close
        ).run(workers)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
