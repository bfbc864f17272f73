"""What a reviewer would otherwise have to say again and again, as tests. Each ban names what to do instead."""

import ast
import builtins
import re
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from syncbrok import client
from syncbrok.model.settings import QUEUE_SETTINGS, SUBSCRIBER_SETTINGS

ROOT = Path(__file__).parents[2]
FUNCTION_LINES_MAX = 70
MODULE_LINES_MAX = 600
# Capitalised words in docstrings that are no classes: headers of HTTP, fields of the msgpack bus.
FOREIGN_NAMES = {"Data", "Date", "Expect", "Host", "Location", "Origin", "Prefer", "Topic"}
CODE = ("syncbrok/", "tests/", "benchmarks/", "examples/", "tools/")

# Who may start a task: each of these awaits what it starts, or cancels and awaits it.
TASK_OWNERS = {
    "syncbrok/delivery/dispatch/dispatcher.py",
    "syncbrok/delivery/webhook/known_addresses.py",
    "syncbrok/cli/serve/cluster_member.py",
    "syncbrok/cli/serve/follower_front.py",
    "syncbrok/client/batching.py",
    "syncbrok/delivery/webhook/subscriber_route.py",
    "syncbrok/delivery/webhook/token_line.py",
    "syncbrok/frontends/listening.py",
    "syncbrok/frontends/over_tcp/session/peer_session.py",
    "syncbrok/frontends/relay.py",
    "syncbrok/space/commit/committer.py",
    "syncbrok/space/space.py",
}
# Who judges what a broker did; they know what was asked and answered, and the log's format.
JUDGES = (
    "cluster/judge",
    "crash/everything_judge",
    "crash/traffic",
    "disk/bad_disk",
    "disk/rotting",
    "disk/small_disk",
    "overload/attacks",
    "overload/overrun",
    "power/judge",
)
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
MAY_SLEEP = {"tests/support/polling.py"}  # the only sleeps of the tests: waiting, with a deadline


@cache
def tracked() -> tuple[str, ...]:
    """Every file of the project, as paths from its root: what git tracks or would, else (an export) what is there."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    asked = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=False)
    if asked.returncode == 0:
        names = asked.stdout.split("\0")
    else:
        names = [str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if not path.match("*/.venv/*")]
    return tuple(sorted({name for name in names if (ROOT / name).is_file()}))


def python_files(*folders: str) -> list[str]:
    return [name for name in tracked() if name.endswith(".py") and name.startswith(folders or CODE)]


@cache
def tree(name: str) -> ast.Module:
    return ast.parse((ROOT / name).read_text(), name)


@cache
def text(name: str) -> str:
    """The file as text; empty for what is not text (pictures)."""
    try:
        return (ROOT / name).read_text()
    except UnicodeDecodeError:
        return ""


def functions(name: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree(name)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def dotted(node: ast.expr) -> str:
    """``asyncio.sleep`` for the expression that says so, ``""`` for what is not a dotted name."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}".lstrip(".")
    return node.id if isinstance(node, ast.Name) else ""


def calls(name: str) -> Iterator[tuple[str, int]]:
    return ((dotted(node.func), node.lineno) for node in ast.walk(tree(name)) if isinstance(node, ast.Call))


def test_functions_fit_on_a_screen() -> None:
    """A function is read at a glance: at most 70 lines. Split it where its paragraphs are."""
    long = [
        f"{name}:{function.lineno} {function.name} has {lines} lines"
        for name in python_files()
        for function in functions(name)
        if (lines := (function.end_lineno or 0) - function.lineno + 1) > FUNCTION_LINES_MAX
    ]
    assert not long, long


def test_modules_say_one_thing() -> None:
    """A module is about one thing. Over 600 lines it is likely about two: give the second a file, and its place. Where
    it is about one all the same, its first lines say why it is one subject: no subject ends because a number does."""
    long = [
        f"{name} has {n} lines"
        for name in python_files()
        if (n := text(name).count("\n")) > MODULE_LINES_MAX
        and "one subject" not in " ".join((ast.get_docstring(tree(name)) or "").splitlines()[:5])
    ]
    assert not long, long


def test_a_delivery_is_moved_by_its_cursor_alone() -> None:
    """DESIGN 3: where a delivery stands is its state, so whoever moves it is found in one file: ``Cursor``, by a method
    for each thing that can happen. Two loops over many answers and rows move what they are about themselves."""
    sets = {"blocked", "eligible", "due", "in_flight", "retrying", "ended_out_of_order", "unconfirmed"}
    moves = {"add", "clear", "discard", "move", "pop", "pop_first", "pop_some", "remove", "setdefault", "update"}
    found = {
        f"{name.rpartition('/')[2]} {function.name}"
        for name in python_files("syncbrok/delivery/")
        if "syncbrok.delivery.scheduler.cursor import" in text(name)
        for function in functions(name)
        for node in ast.walk(function)
        if isinstance(node, ast.Call | ast.Subscript)
        and (place := dotted(node.func if isinstance(node, ast.Call) else node.value).split("."))
        and (
            (len(place) > 1 and place[-1] in moves and place[-2] in sets)
            if isinstance(node, ast.Call)
            else (place[-1] in sets and isinstance(node.ctx, ast.Store | ast.Del))
        )
    }
    snapshot = {"snapshot.py _load_cursor"}  # fills fresh ones
    assert found - snapshot == {"dispatch_queue.py settle", "outcomes.py apply"}


def test_nothing_is_left_for_later() -> None:
    """What is not finished is an issue, not a comment."""
    mark = re.compile(r"\b(FIXME|TODO|XXX|HACK)\b")
    this = "tests/whole/test_tidy.py"
    found = [f"{n}: {m[0]}" for n in tracked() if n != this and not n.endswith(".svg") and (m := mark.search(text(n)))]
    assert not found, found


def test_modules_are_named_for_what_they_do() -> None:
    """No drawer for everything: a module is named for its one subject."""
    drawers = {"utils", "util", "helpers", "helper", "manager", "managers", "misc", "common"}
    found = [name for name in python_files() if drawers & set(Path(name).with_suffix("").parts)]
    assert not found, found


def test_every_test_states_its_promise() -> None:
    """The docstring of a test says which promise it guards, for whoever sees it fail."""
    silent = [
        f"{name}:{function.lineno} {function.name}"
        for name in python_files("tests/")
        for function in functions(name)
        if function.name.startswith("test_") and not ast.get_docstring(function)
    ]
    assert not silent, silent


def test_tests_stand_where_their_code_stands() -> None:
    """Who changes a wing finds its tests by its name: ``tests`` has the rooms of ``syncbrok``, and ``whole``."""
    lost = [
        name
        for name in python_files("tests/")
        if (file := Path(name)).name.startswith("test_")
        and file.parts[1] != "whole"
        and (len(file.parts) < 3 or not (ROOT / "syncbrok" / Path(*file.parts[1:-1])).is_dir())
    ]
    assert not lost, lost


def test_parts_are_real() -> None:
    """Tests use real parts, or a fake that keeps the same interface: never a patched-out name."""
    banned = re.compile(r"\bmock\.|unittest\.mock|import mock|\bmonkeypatch\.setattr\b|\bmocker\b")
    found = [
        f"{n}: {m[0]}"
        for n in python_files("tests/")
        if n != "tests/whole/test_tidy.py" and (m := banned.search(text(n)))
    ]
    assert not found, found


@pytest.mark.parametrize("judge", JUDGES)
def test_judges_import_nothing_of_what_they_judge(judge: str) -> None:
    """docs/reliability.md: a judge that asked the broker would share its mistakes; nor may what it imports."""
    looked_at, ahead = set[str](), [f"tests/support/{judge}.py"]
    while ahead:
        name = ahead.pop()
        looked_at.add(name)
        for module in imported(name):
            assert module.split(".")[0] not in ("syncbrok", "benchmarks"), f"{judge} imports {module}, by {name}"
            of_module = module.replace(".", "/") + ".py"
            if module.startswith("tests.") and of_module not in looked_at:
                ahead.append(of_module)


def imported(name: str) -> Iterator[str]:
    """The modules that a file imports, by their full names."""
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            whole = (f"{node.module}.{one.name}" for one in node.names)
            modules = [one for one in whole if (ROOT / f"{one.replace('.', '/')}.py").exists()]
            yield from modules or (node.module,)


def test_nothing_sleeps_for_luck() -> None:
    """A sleep that hopes something has happened fails on the slowest machine. Wait with ``tests.support.polling``."""
    found = [
        f"{name}:{line} {what}"
        for name in python_files("tests/")
        if name not in MAY_SLEEP
        for what, line in calls(name)
        if what in {"time.sleep", "asyncio.sleep", "sleep"} and "sleep(0)" not in text(name).splitlines()[line - 1]
    ]
    assert not found, found


def test_every_task_has_an_owner() -> None:
    """A task nobody awaits loses its exception. Start it in a TaskGroup (named group or tasks), or be an owner."""
    starters = ("create_task", "ensure_future")
    in_a_group = re.compile(r"(^|[._])(group|tasks)\.create_task$")
    found = [
        f"{name}:{line} {what}"
        for name in python_files("syncbrok/")
        for what, line in calls(name)
        if what.endswith(starters) and not in_a_group.search(what) and name not in TASK_OWNERS
    ]
    assert not found, found


def test_units_stand_last_in_names() -> None:
    """A time says its unit and says it last: ``timeout_s``, ``time_us``, ``latency_ms_max``; sizes are ``_bytes``."""
    unclear = re.compile(
        r"^(timeout|delay|interval|latency|duration|deadline_(sec|seconds|millis))$"
        r"|_(secs?|seconds|millis|milliseconds|msecs?|usecs?|micros|microseconds|nanos)$"
        r"|_(kb|mb|gb)$|^(max|min)_\w+_(s|ms|us|bytes)$"
    )
    found = [
        f"{name}:{node.lineno} {names}"
        for name in python_files("syncbrok/")
        for node in ast.walk(tree(name))
        if (names := [n for n in names_given(node) if unclear.search(n)])
    ]
    assert not found, found


def names_given(node: ast.AST) -> list[str]:
    """The names a node gives to arguments and annotated fields, where a unit matters most."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        arguments = node.args
        return [argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    return []


def pure_files() -> list[str]:
    """The files that the import contract about the cores names."""
    contracts = tomllib.loads(text("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    modules = next(one["source_modules"] for one in contracts if one["name"].startswith("The cores"))
    paths = tuple(module.replace(".", "/") for module in modules)
    return [name for name in python_files("syncbrok/") if name.startswith(paths)]


def test_the_cores_read_no_clock() -> None:
    """Time is an argument of the cores. The import contracts keep out the modules; this keeps out ``datetime.now``."""
    clocks = {"now", "utcnow", "today"}
    found = [
        f"{name}:{line} {what}"
        for name in pure_files()
        for what, line in calls(name)
        if what.rpartition(".")[2] in clocks and "date" in what
    ]
    assert not found, found


def test_it_runs_anywhere() -> None:
    """Nothing names a machine: no home directories, no hosts of package registries, no addresses of a private net."""
    machine = re.compile(
        r"/(?:root|work|home|Users)/\w|/tmp/\w"
        r"|\bpypi\.org\b|files\.pythonhosted|registry\.npmjs|\bdeb\.debian\b|index-url"
    )
    found = [f"{n}: {m[0]}" for n in tracked() if n != "tests/whole/test_tidy.py" and (m := machine.search(text(n)))]
    assert not found, found


def test_citations_lead_to_a_page() -> None:
    """``RULES 12`` can be looked up: what code and tests cite by number is a page of docs/, and has that section."""
    pages = {"RULES": "rules.md", "INTERFACES": "interfaces.md", "DESIGN": "architecture.md"}
    cited = re.compile(r"\b(?!HTTP)([A-Z]{4,})(?: section| finding| habit)? (\d+)\b(?=[.,;:) ])")
    found = []
    for name in python_files():
        for page, number in cited.findall(" ".join(text(name).split())):
            heading = rf"^(?:## )?{number}\. "
            if page not in pages or not re.search(heading, text(f"docs/{pages[page]}"), re.MULTILINE):
                found.append(f"{name}: {page} {number}")
    assert not found, found


def test_docstrings_name_what_there_is() -> None:
    """A name of the code in a docstring or comment, ``like_this``, is one that the code has: it moves along with it."""
    known = names_of_the_code()
    unknown = [
        f"{name}: ``{quoted}``"
        for name in python_files("syncbrok/")
        for quoted in re.findall(r"``([\w.]+)``", text(name))
        for part in quoted.split(".")
        if re.fullmatch(r"[a-z]+(_[a-z0-9]+)+", part) and part not in known
    ]
    assert not unknown, unknown


def test_docstrings_name_classes_that_there_are() -> None:
    """A member in a docstring or comment, ``Class.member``, leads to that class: who renames a class looks for it."""
    classes = {
        node.name
        for name in python_files("syncbrok/")
        for node in ast.walk(tree(name))
        if isinstance(node, ast.ClassDef)
    }
    classes |= {name for name in dir(builtins) if isinstance(getattr(builtins, name), type)}
    unknown = [
        f"{name}: ``{class_}.{member}``"
        for name in python_files("syncbrok/")
        for class_, member in re.findall(r"``([A-Z][a-z]\w*)\.([a-z_]+)``", text(name))
        if class_ not in classes or member not in names_of_the_code()
    ]
    assert not unknown, unknown


def test_a_class_in_a_docstring_stands_where_it_is_said_to() -> None:
    """``module.Class`` names a class, or a constant, of a module of that name; ``SomeName`` one that there is."""
    defined: dict[str, set[str]] = {}
    for name in python_files("syncbrok/"):
        module = Path(name).stem if Path(name).stem != "__init__" else Path(name).parent.name
        defined.setdefault(module, set()).update(_top_names(tree(name)))
    everywhere = set().union(*defined.values()) | set(dir(builtins)) | FOREIGN_NAMES
    lost = []
    for name in python_files("syncbrok/"):
        lost += [
            f"{name}: ``{module}.{member}``"
            for module, member in re.findall(r"``([a-z_]+)\.([A-Z]\w+)``", text(name))
            if module not in {"orjson", "web"} and member not in defined.get(module, ())
        ]
        lost += [
            f"{name}: ``{class_}``"
            for class_ in re.findall(r"``([A-Z][a-z]+(?:[A-Z]\w*)?)``", text(name))
            if class_ not in everywhere
        ]
    assert not lost, lost


def _top_names(module: ast.Module) -> set[str]:
    """What a module defines: classes, wherever they stand, functions and names."""
    found = {node.name for node in ast.walk(module) if isinstance(node, ast.ClassDef)}
    for node in module.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {one.id for one in targets if isinstance(one, ast.Name)}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            found |= {one.asname or one.name for one in node.names}
    return found


def test_a_repr_begins_with_the_name_of_its_class() -> None:
    """Who meets one in a debugger or a log line looks for its class."""
    wrong = [
        f"{name}: {node.name}: {begun}"
        for name in python_files("syncbrok/")
        for node in ast.walk(tree(name))
        if isinstance(node, ast.ClassDef)
        for method in node.body
        if isinstance(method, ast.FunctionDef) and method.name == "__repr__"
        for begun in re.findall(r"f\"<(\w+)", ast.get_source_segment(text(name), method) or "")
        if begun != node.name
    ]
    assert not wrong, wrong


def test_words_lead_to_the_file_that_they_name() -> None:
    """A module in a docstring, ``room.module``, and a file on a page, `module.py`, stand where they are said to: who
    moves one looks for its names."""
    files = {Path(name).with_suffix("") for name in python_files()}
    modules = {".".join(file.parts) for file in files}
    packages = {".".join(file.parent.parts) for file in files}
    rooms = {file.parts[1] for file in files if file.parts[0] == "syncbrok" and file.name != "__init__"}
    lost = [
        f"{name}: ``{quoted}``"
        for name in python_files("syncbrok/", "tests/")
        for quoted in re.findall(r"``((?:\w+\.)+\w+)``", text(name))
        if quoted.partition(".")[0] in rooms
        and f"syncbrok.{quoted}" not in modules | packages
        and f"syncbrok.{quoted.rpartition('.')[0]}" not in modules
    ]
    lost += [
        f"{name}: `{quoted}`"
        for name in tracked()
        if name.endswith(".md")
        for quoted in re.findall(r"`([\w/]+)\.py`", text(name))
        if not any(f"/{file}".endswith(f"/{quoted}") for file in files)
    ]
    assert not lost, lost


def test_interfaces_name_each_word_of_the_client() -> None:
    """INTERFACES 7: what a program may import of ``syncbrok.client`` is what the page says."""
    (row,) = [line for line in text("docs/interfaces.md").splitlines() if line.startswith("| `syncbrok.client` |")]
    assert set(re.findall(r"`(\w+)`", row)) - {"__all__"} == set(client.__all__)


@pytest.mark.parametrize(
    ("page", "queues", "subscribers"),
    [
        ("docs/interfaces.md", r"Queue settings:(.+?)Subscriber", r"Subscriber settings:(.+?)\. With"),
        ("docs/http.md", r"\| setting of a queue \|(.+?)\n\n", r"\| setting of a subscriber \|(.+?)\n\n"),
    ],
)
def test_pages_name_each_setting(page: str, queues: str, subscribers: str) -> None:
    """INTERFACES 3: whoever declares a queue or a subscriber finds all that can be said of it."""
    beside = {"pull", "secret", "start"}
    for sentence, settings in ((queues, QUEUE_SETTINGS), (subscribers, SUBSCRIBER_SETTINGS)):
        (said,) = re.findall(sentence, text(page), re.DOTALL)
        names = {one.name for one in settings} | (beside if settings is SUBSCRIBER_SETTINGS else set())
        assert names <= set(re.findall(r"\w+", said)), names


def test_pages_name_events_that_there_are() -> None:
    """An event that a page tells an operator to look for is one that the broker writes."""
    known = names_of_the_code()
    unknown = [
        f"{name}: {event}"
        for name in tracked()
        if name.endswith(".md")
        for event in re.findall(r"\bsyncbrok\.[a-z]+\.[a-z_]+\b(?!\()", text(name))
        if event not in known and not (ROOT / event.replace(".", "/")).with_suffix(".py").exists()
    ]
    assert not unknown, unknown


def test_pages_describe_what_there_is() -> None:
    """What a page describes can be used: a reader need not find out which parts of it are still to come."""
    to_come = re.compile(r"\bnot (?:yet )?(?:built|implemented)\b|\bto be implemented\b", re.IGNORECASE)
    found = [f"{n}: {m[0]}" for n in tracked() if n.endswith(".md") and (m := to_come.search(text(n)))]
    assert not found, found


def test_the_page_of_the_storage_names_every_file() -> None:
    """Who looks into the directory of a log finds there what each file is, and whether it may be deleted."""
    listed = text("syncbrok/log/__init__.py").partition("The directory::")[2].partition("Segment\n===")[0]
    names = re.findall(r"^    (?:\{base:020d\})?(\S+) ", listed, re.MULTILINE)
    assert {".log", "next.tmp", "lock"} <= set(names)
    missing = [name for name in (*names, "checkpoint.before", "*.tmp") if name not in text("storage/README.md")]
    assert not missing, missing


@cache
def names_of_the_code() -> frozenset[str]:
    """Every name in it, the words of its strings, the strings themselves where they are one word or an event, and the
    files it is in. Docstrings and comments are not code."""
    known: set[str] = set()
    for name in python_files():
        known |= {Path(name).stem, Path(name).parent.name}
        said = {id(node.value) for node in ast.walk(tree(name)) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree(name)):
            known |= {value for value in vars(node).values() if isinstance(value, str)}
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
                known |= set(re.findall(r"\w+", node.value))
    return frozenset(known)


def test_links_between_pages_lead_somewhere() -> None:
    """Every link of a Markdown page to a file of the project resolves, its #heading included."""
    link = re.compile(r"\]\((?!\w+:)([^)\s#]*)(#[^)\s]*)?\)")
    found = []
    for page in (name for name in tracked() if name.endswith(".md")):
        for target, heading in link.findall(outside_code(text(page))):
            file = (ROOT / page).parent / target if target else ROOT / page
            if not file.exists():
                found.append(f"{page}: {target}")
            elif heading and file.suffix == ".md" and heading[1:] not in headings(file.read_text()):
                found.append(f"{page}: {target}{heading}")
    assert not found, found


def outside_code(page: str) -> str:
    return re.sub(r"^```.*?^```", "", page, flags=re.DOTALL | re.MULTILINE)


def headings(page: str) -> set[str]:
    """The anchors a page offers, made as forges make them."""
    lines = re.findall(r"^#+ (.*)$", outside_code(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line.lower()).strip().replace(" ", "-") for line in lines}


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "storage/README.md"])
def test_the_pages_a_newcomer_looks_for_are_there(name: str) -> None:
    """A newcomer finds what it is, how to help, what changed and under which licence."""
    assert (ROOT / name).stat().st_size > 200


def test_pages_are_wrapped() -> None:
    """Prose has at most 120 characters a line; tables and code are as wide as they are."""
    found = []
    for name in (*PAGES, *(one for one in tracked() if one.startswith("docs/") and one.endswith(".md"))):
        code = False
        for number, line in enumerate(text(name).splitlines(), 1):
            code ^= line.lstrip().startswith("```")
            if len(line) > 120 and not (code or line.startswith(("|", "    "))):
                found.append(f"{name}:{number}")
    assert not found, found


def test_the_words_of_file_names_are_in_the_glossary() -> None:
    """A newcomer who meets a file looks its name up: each word of it begins a row of the glossary, or stands among the
    plain words there. That a word stands somewhere in an explanation explains nothing."""
    rows, plain = _glossary_words()
    known = {form for word in rows | plain for form in _forms(word)}
    unknown = {word: names[0] for word, names in _words_of_file_names().items() if word not in known}
    assert not unknown, sorted(unknown.items())


def test_no_word_is_called_plain_for_nothing() -> None:
    """The plain words are few: each is in the name of a file, and none has a row of its own."""
    rows, plain = _glossary_words()
    used = _words_of_file_names()
    idle = sorted(word for word in plain if word in rows or not used.keys() & _forms(word))
    assert not idle, idle


def _glossary_words() -> tuple[set[str], set[str]]:
    """The words in the first columns of the glossary's tables, and its plain words."""
    explained, _, plain = text("docs/glossary.md").lower().partition("\n## plain words\n")
    firsts = re.findall(r"^\| *([^|-][^|]*)\|", explained, re.MULTILINE)
    lists = re.findall(r"^\|[^|]+\| *([^|-][^|]*)\|$", plain, re.MULTILINE)
    return _words(firsts) - {"word"}, _words(lists) - {"words"}


def _words(texts: list[str]) -> set[str]:
    return {word for one in texts for word in re.findall(r"[a-z]+", one)}


def _forms(word: str) -> set[str]:
    """A word and its plural."""
    return {word, f"{word}s", f"{word}es"} | ({f"{word[:-1]}ies"} if word.endswith("y") else set())


def _words_of_file_names() -> dict[str, list[str]]:
    """Each word in the names of the package's modules and folders, with the files."""
    found: dict[str, list[str]] = {}
    for name in python_files("syncbrok/"):
        for part in Path(name).with_suffix("").parts:
            for word in part.strip("_").split("_"):
                found.setdefault(word, []).append(name)
    return {word: names for word, names in found.items() if word not in {"syncbrok", "init"}}


def test_a_class_name_is_one_thing() -> None:
    """Whoever searches for a name finds one class."""
    where: dict[str, list[str]] = {}
    for name in python_files("syncbrok/"):
        for node in tree(name).body:
            if isinstance(node, ast.ClassDef):
                where.setdefault(node.name, []).append(name)
    twice = {one: names for one, names in where.items() if len(names) > 1}
    assert not twice, twice


def test_the_glossary_names_what_there_is() -> None:
    """docs/glossary.md: each word that is a class leads to it."""
    rows = re.findall(r"^\|[^|]+\|[^|]+\| `(\w+)` \| `([\w/.]+)` \|$", text("docs/glossary.md"), re.MULTILINE)
    assert len(rows) > 40
    missing = [
        f"{name} in {file}"
        for name, file in rows
        if not re.search(rf"^(class {name}\b|{name} = )", text(f"syncbrok/{file}"), re.MULTILINE)
    ]
    assert not missing, missing


def test_no_merge_is_left_half_done() -> None:
    """A page once kept both sides of a conflict for days, with the marks between them."""
    marks = re.compile(r"^(<{7}|>{7}) ", re.MULTILINE)
    found = [name for name in tracked() if name.endswith((".md", ".py", ".toml", ".yml")) and marks.search(text(name))]
    assert not found, found
