from transom.proxy.drain import Drain


def test_a_server_begins_undrained() -> None:
    drain = Drain()
    assert not drain.draining
    assert not drain.expired.is_set()
