import importlib
import pkgutil

import transom

NOT_IMPORTED = {
    "transom.storage.migrations.env",  # runs only inside a migration
}


def test_every_module_can_be_imported_and_says_what_it_is_for() -> None:
    undocumented = []
    for module in pkgutil.walk_packages(transom.__path__, "transom."):
        if module.name in NOT_IMPORTED or module.name.endswith(".__main__"):
            continue
        imported = importlib.import_module(module.name)
        if not module.ispkg and not imported.__doc__:
            undocumented.append(module.name)
    assert undocumented == []
