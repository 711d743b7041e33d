import os
import signal
from pathlib import Path

from tests.proxy.test_process import Start, start

__all__ = ["start"]


def test_two_workers_serve_and_share_their_metrics(start: Start) -> None:
    program = start(workers=2)
    served = [int(program.ask("/").read()) for _ in range(40)]
    assert set(served) <= set(program.pids)
    text = program.ask("/metrics").read().decode()
    assert 'transom_requests_total{endpoint="/",model="m",status="200",tenant="t"} 40.0' in text
    program.end()
    assert {int(program.line("ended")[0]) for _ in range(2)} == set(program.pids)
    assert program.wait() == 0


def test_a_worker_that_dies_is_replaced(start: Start) -> None:
    program = start(workers=2)
    os.kill(program.pids[0], signal.SIGKILL)
    replacement = int(program.line("started")[0])
    assert replacement not in program.pids
    program.end()
    assert {int(program.line("ended")[0]) for _ in range(2)} == {program.pids[1], replacement}
    assert program.wait() == 0


def test_workers_end_when_their_supervisor_is_gone(start: Start) -> None:
    program = start(workers=2)
    program.end(signal.SIGKILL)
    assert {int(program.line("ended")[0]) for _ in range(2)} == set(program.pids)


def test_an_interrupt_reaches_the_workers_once(start: Start) -> None:
    program = start(workers=2)
    answer = program.ask("/slow")
    program.end(signal.SIGINT)
    assert answer.read() == b"xdraining"
    assert program.wait() == 0


def test_a_second_signal_ends_all_workers_at_once(start: Start) -> None:
    program = start(workers=2, drain_s=600)
    program.ask("/hang")
    program.end()
    program.refused()
    program.end()
    assert program.wait() == 0


def test_workers_that_cannot_start_end_the_server(start: Start) -> None:
    assert start(workers=2, environment={"FAIL_START": "1"}).wait() == 1


def test_a_replacement_that_cannot_start_is_tried_again(start: Start, tmp_path: Path) -> None:
    """As while the database is away: those that run go on meanwhile."""
    away = tmp_path / "away"
    program = start(workers=2, environment={"FAIL_LATER": str(away)})
    killed, other = (int(program.line("started")[0]) for _ in range(2))
    away.touch()
    os.kill(killed, signal.SIGKILL)
    failed = {program.line("failing")[0] for _ in range(2)}
    assert len(failed) == 2
    assert int(program.ask("/").read()) == other
    away.unlink()
    replacement = int(program.line("started")[0])
    program.end()
    assert {int(program.line("ended")[0]) for _ in range(2)} == {other, replacement}
    assert program.wait() == 0


def test_workers_say_their_last_words(start: Start) -> None:
    program = start(workers=2)
    program.end()
    assert program.process.stdout
    assert program.process.stdout.read().count('"stopped"') == 2
    assert program.wait() == 0
