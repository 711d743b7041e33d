import pytest

from transom.storage import store
from transom.storage.store import CannotOpen, StorageError


def test_an_error_names_the_operation_and_the_cause() -> None:
    error = StorageError("load", "disk full")
    assert str(error) == "storage: load: disk full"
    assert (error.operation, error.cause) == ("load", "disk full")


@pytest.mark.parametrize("name", ["LockedByProcess", "NotADatabase", "Corrupt", "SchemaTooNew"])
def test_refusals_to_start_are_told_apart_and_caught_together(name: str) -> None:
    assert issubclass(getattr(store, name), CannotOpen)
    assert issubclass(CannotOpen, StorageError)
