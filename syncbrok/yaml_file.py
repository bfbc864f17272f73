"""Reads YAML so that every value knows its file, line and key, and a mistake can be named where it stands.

Less than YAML on purpose: no aliases (a few lines of them can unfold to gigabytes), no tags, no key twice, one
document, bounded size. ``${NAME}`` in a value is replaced from the environment, ``$${`` stands for ``${``; a plain
value is read again after that (``port: ${PORT}`` is a number), a quoted one stays text. Numbers that the versions
1.1 and 1.2 of YAML read differently (``010``, ``1:30``) are refused.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml
from yaml.constructor import SafeConstructor
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from syncbrok.model import limits
from syncbrok.model.errors import BadConfig, ClientFault
from syncbrok.model.settings import suggest

T = TypeVar("T")

_DEPTH_MAX: Final = 16
_VARIABLE: Final = re.compile(r"\$\$\{|\$\{([^}]*)\}?")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_INT: Final = "tag:yaml.org,2002:int"
_FLOAT: Final = "tag:yaml.org,2002:float"
_OCTAL: Final = re.compile(r"[-+]?0[0-9_]+")
"""a leading zero: 010 is 8 in version 1.1 of YAML, 10 in 1.2 and to whoever wrote it"""
_CORE_TAGS: Final = frozenset(f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float"))
_TEXT_TAGS: Final = frozenset(f"tag:yaml.org,2002:{name}" for name in ("str", "timestamp", "merge", "value"))
_CONTAINER_TAGS: Final = frozenset(f"tag:yaml.org,2002:{name}" for name in ("map", "seq"))


class YamlEntry:
    """A value of a file, or of a variable or flag (``line`` 0). ``key`` is its way from the top: ``http.port``."""

    def __init__(self, node: Node, file: str, line: int, key: str, variables: Mapping[str, str]) -> None:
        self.file = file
        self.line = line
        self.key = key
        self._node = node
        self._variables = variables

    def __repr__(self) -> str:
        return f"<YamlEntry {self.where}>"

    @property
    def where(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.key}" if self.key else place

    def wrong(self, detail: str) -> BadConfig:
        """The error of this value."""
        return BadConfig(f"{self.where}: {detail}", file=self.file, line=self.line, key=self.key)

    def mapping(self, known: Iterable[str] | None = None) -> dict[str, "YamlEntry"]:
        """Its entries by key, as the keys are written; nothing at all is an empty mapping. Raises ``BadConfig`` where
        it is no mapping, has a key twice, or has one that is not ``known``."""
        if self.is_null:
            return {}
        if not isinstance(self._node, MappingNode):
            raise self.wrong(f"expected a mapping (key: value), found {self._shown()}")
        allowed = None if known is None else tuple(known)
        entries: dict[str, YamlEntry] = {}
        for key_node, value in self._node.value:
            line = self._line(key_node)
            if not isinstance(key_node, ScalarNode):
                raise BadConfig(f"{self.file}:{line}: {self.key}: expected a plain key", file=self.file, line=line)
            name = key_node.value
            entry = YamlEntry(value, self.file, line, f"{self.key}.{name}" if self.key else name, self._variables)
            if allowed is not None and name not in allowed:
                raise entry.wrong(f"unknown key{suggest(name, allowed)}")
            if name in entries:
                raise entry.wrong(f"the key stands here for the second time; first in line {entries[name].line}")
            entries[name] = entry
        return entries

    def items(self) -> list["YamlEntry"]:
        """Its entries, in order; nothing at all is an empty list. Raises ``BadConfig`` where it is no list."""
        if self.is_null:
            return []
        if not isinstance(self._node, SequenceNode):
            raise self.wrong(f"expected a list, found {self._shown()}")
        return [
            YamlEntry(node, self.file, self._line(node), f"{self.key}[{position}]", self._variables)
            for position, node in enumerate(self._node.value)
        ]

    def _line(self, node: Node) -> int:
        return _line(node) if self.line else 0

    @property
    def is_null(self) -> bool:
        return isinstance(self._node, ScalarNode) and self._node.tag == "tag:yaml.org,2002:null"

    @property
    def is_mapping(self) -> bool:
        return isinstance(self._node, MappingNode)

    def as_python(self) -> Any:
        """As text, numbers, booleans, None, dictionaries and lists. Raises ``BadConfig`` for a variable that is not
        set and for tags."""
        if isinstance(self._node, ScalarNode):
            return self._scalar(self._node)
        if self._node.tag not in _CONTAINER_TAGS:
            raise self.wrong(f"tags are not read here, found {self._node.tag}")
        if isinstance(self._node, MappingNode):
            return {name: entry.as_python() for name, entry in self.mapping().items()}
        return [entry.as_python() for entry in self.items()]

    def read(self, parse: Callable[[Any], T]) -> T:
        """The result of ``parse`` on the value. A ``ClientFault`` of it becomes a ``BadConfig`` with file, line and
        key. Values of variables are never repeated: one may be a secret."""
        value = self.as_python()
        try:
            return parse(value)
        except ClientFault as wrong:
            raise self._at_fault(parse, wrong.detail).refused(wrong) from None

    def refused(self, wrong: ClientFault) -> BadConfig:
        """The error of this value that a parser has refused."""
        names = ", ".join(sorted({f"${{{name}}}" for name in self._names(self._node)}))
        if not names:
            return self.wrong(wrong.detail)
        what = wrong.members.get("expected")
        detail = f"expected {what}, found something else in {names}" if what else f"{names} cannot be used here"
        return self.wrong(detail)

    def _at_fault(self, parse: Callable[[Any], object], detail: str) -> "YamlEntry":
        """The item of this list or mapping that is refused alone in the same words, which may stand many lines below;
        this value itself where no single item is to blame, or where no list or mapping would do at all."""
        if isinstance(self._node, ScalarNode) or _refusal(parse, {} if self.is_mapping else []) is not None:
            return self
        if self.is_mapping:
            alone: list[tuple[YamlEntry, Any]] = [
                (item, {name: item.as_python()}) for name, item in self.mapping().items()
            ]
        else:
            alone = [(item, [item.as_python()]) for item in self.items()]
        return next((item for item, value in alone if _refusal(parse, value) == detail), self)

    def _scalar(self, node: ScalarNode) -> Any:
        text, tag = node.value, node.tag
        if "${" in text:
            text = _VARIABLE.sub(self._replacement, text)
            if node.style is None:
                tag = str(yaml.SafeLoader("").resolve(ScalarNode, text, (True, False)))  # type: ignore[no-untyped-call]
        if tag in _TEXT_TAGS:
            return text
        if tag not in _CORE_TAGS:
            raise self.wrong(f"tags are not read here, found {tag}")
        if tag == _INT and _OCTAL.fullmatch(text):
            raise self.wrong("a number that begins with 0 is octal to some programs: write it without, or in quotes")
        if tag in (_INT, _FLOAT) and ":" in text:
            raise self.wrong(
                "numbers with a colon count in sixties to some programs: write a duration with its unit (90s), a plain "
                "number, or text in quotes"
            )
        try:
            return SafeConstructor().construct_object(ScalarNode(tag, text))
        except (ValueError, KeyError, yaml.YAMLError):
            raise self.wrong("this value cannot be read; put it in quotes if it is text") from None

    def _replacement(self, matched: "re.Match[str]") -> str:
        name = matched[1]
        if name is None:
            return "${"
        if not matched[0].endswith("}") or not _NAME.fullmatch(name):
            raise self.wrong("expected ${NAME}, the name of an environment variable; write $${ for the text ${")
        if name not in self._variables:
            raise self.wrong(f"the environment variable {name} is not set")
        return self._variables[name]

    def _names(self, node: Node) -> Iterable[str]:
        if isinstance(node, ScalarNode):
            return [matched[1] for matched in _VARIABLE.finditer(node.value) if matched[1]]
        children = [n for pair in node.value for n in pair] if isinstance(node, MappingNode) else node.value
        return [name for child in children for name in self._names(child)]

    def _shown(self) -> str:
        if isinstance(self._node, ScalarNode):
            shown = self._node.value
            return repr(shown if len(shown) <= 60 else f"{shown[:57]}...")
        return "a mapping" if isinstance(self._node, MappingNode) else "a list"


def _refusal(parse: Callable[[Any], object], value: Any) -> str | None:
    """In what words ``parse`` refuses it; None where it does not."""
    try:
        parse(value)
    except ClientFault as wrong:
        return wrong.detail
    return None


def read_yaml_file(path: Path, variables: Mapping[str, str]) -> YamlEntry:
    """The file's one document. Raises ``BadConfig`` where it cannot be read or is not YAML as described above."""
    try:
        with path.open("rb") as file:
            content = file.read(limits.config_file_bytes_max + 1)
    except OSError as wrong:
        raise BadConfig(f"{path}: cannot be read: {wrong.strerror}", file=str(path)) from None
    if len(content) > limits.config_file_bytes_max:
        raise BadConfig(f"{path}: is larger than {limits.config_file_bytes_max} bytes", file=str(path))
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as wrong:
        line = content.count(b"\n", 0, wrong.start) + 1
        raise BadConfig(f"{path}:{line}: is not UTF-8 text", file=str(path), line=line) from None
    return read_yaml(text, str(path), variables)


def variables_in(path: Path) -> set[str]:
    """The names of the variables that a file asks for. None where it cannot be read."""
    try:
        text = path.read_text("utf-8", "replace")
    except OSError:
        return set()
    return {matched[1] for matched in _VARIABLE.finditer(text) if matched[1]}


def read_yaml(text: str, file: str, variables: Mapping[str, str], *, key: str = "", numbered: bool = True) -> YamlEntry:
    """``text`` as ``file`` would hold it. Not ``numbered``: a variable or flag, which has no lines."""
    try:
        node = _Loader(text, file).get_single_node()
    except yaml.MarkedYAMLError as wrong:
        mark = wrong.problem_mark or wrong.context_mark
        line = 1 if mark is None else mark.line + 1
        hint = "; inside {...} and [...] put ${NAME} in quotes" if "${" in text else ""
        what = f"is not YAML: {wrong.problem or wrong}{hint}"
        raise BadConfig(f"{file}:{line}: {what}", file=file, line=line) from None
    except yaml.YAMLError as wrong:
        raise BadConfig(f"{file}: is not YAML: {' '.join(str(wrong).split())}", file=file) from None
    if node is None:
        node = ScalarNode("tag:yaml.org,2002:null", "")
    return YamlEntry(node, file, 1 if numbered else 0, key, variables)


class _Loader(yaml.SafeLoader):
    """Refuses aliases and deep nesting: small texts that cost much to read."""

    def __init__(self, text: str, file: str) -> None:
        super().__init__(text)
        self._file = file
        self._depth = 0

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        line = _line(event)
        if isinstance(event, yaml.AliasEvent):
            what = f"aliases (*{event.anchor}) are not read here"
            raise BadConfig(f"{self._file}:{line}: {what}", file=self._file, line=line)
        self._depth += 1
        if self._depth > _DEPTH_MAX and isinstance(event, yaml.CollectionStartEvent):
            raise BadConfig(f"{self._file}:{line}: is nested too deeply", file=self._file, line=line)
        node: Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node


def _line(node: Node | yaml.Event) -> int:
    mark = node.start_mark
    return 1 if mark is None else int(mark.line) + 1
