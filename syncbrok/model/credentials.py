"""Values of settings that nobody is shown: passwords, tokens, private keys. Pure.

They are kept with the secrets, never in a fact, an answer or a log line (RULES 19). So a frontend takes them out before
it reads a setting, and puts the word ``set`` in their place, which is also what an answer shows. Each has a name:
its setting's, a colon, and its place in it (``signatures:x-hub-signature-256``).
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from syncbrok.model.errors import BadSetting

SET: Final = "set"
"""in place of a value; whoever gives it for one that is there means that one"""
NONE: Final[Mapping[str, str]] = MappingProxyType({})

Hide = Callable[[Any], tuple[Any, dict[str, str]]]
"""A setting's value outside with ``SET`` in place of what nobody is shown; and that, by name."""


def setting_of(name: str) -> str:
    """The name of the setting that the credential of this name belongs to."""
    return name.partition(":")[0]


def of_settings(credentials: Mapping[str, str], settings: frozenset[str] | set[str]) -> dict[str, str]:
    """The credentials of the named settings."""
    return {name: value for name, value in credentials.items() if setting_of(name) in settings}


def hidden(name: str, value: Any, credentials: dict[str, str]) -> Any:
    """``SET``, with the value kept under its name; what ``SET`` or None says already stays. Raises ``BadSetting``,
    which does not repeat the value, where it is no text."""
    if value is None or value == SET:
        return value
    if not isinstance(value, str) or not value:
        raise BadSetting(f"{name.partition(':')[2]}: expected text", expected="text")
    credentials[name] = value
    return SET
