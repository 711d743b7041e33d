"""Imports the trimmers that a policy names as `package.module:Class`, or says why it cannot.

It knows nothing of files and lines, and of where modules may lie.
"""

import importlib
from operator import attrgetter

from transom.policies.registry import UnknownTrimmer, trimmers
from transom.proxy.config.sentences import nearest


def load_trimmer(name: str) -> object:
    """Import `package.module:Class` and make one; raises UnknownTrimmer with the reason where that fails."""
    module_name, _, attribute = name.partition(":")
    # A module written since the last look would not be seen: folders are listed once.
    importlib.invalidate_caches()
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise UnknownTrimmer(f"the module {module_name} cannot be imported: {error}") from error
        raise UnknownTrimmer(
            f"there is no module {error.name}; it may lie beside the configuration or on PYTHONPATH"
        ) from None
    except (Exception, SystemExit) as error:
        raise UnknownTrimmer(f"the module {module_name} cannot be imported: {_shown(error)}") from error
    try:
        made_by = attrgetter(attribute)(module)
    except AttributeError:
        hint = nearest(attribute, vars(module))
        raise UnknownTrimmer(f"the module {module_name} has no class {attribute}{hint}") from None
    try:
        return made_by()
    except (Exception, SystemExit) as error:
        raise UnknownTrimmer(f"{name} cannot be made: {_shown(error)}") from error


def unusable(names: tuple[str, ...]) -> str | None:
    """Say why the trimmers of a policy cannot be used, or None where they can."""
    try:
        trimmers(names, load_trimmer)
    except UnknownTrimmer as error:
        return str(error)
    return None


def _shown(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
