"""The documents as a site (``make site``): what stands outside ``docs/`` becomes pages of it. Hooks of mkdocs.

A link between pages stays one, wherever they stand in the repository. A link to any other file becomes its path, since
the site does not hold it.
"""

import posixpath
import re
from pathlib import Path
from typing import Any, Final

from mkdocs.structure.files import File, Files

ROOT: Final = Path(__file__).resolve().parent.parent
PAGES: Final = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
}
"""files outside ``docs/`` -> pages of the site"""
_LEFT_OUT: Final = {"promises.md"}
_LINK: Final = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|mailto:|#)([^)\s#]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages from outside."""
    for name, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The text with links as they are within the site."""
    outside = page.file.src_uri in PAGES.values()
    return _LINK.sub(lambda link: _within(link, "" if outside else "docs"), markdown)


def _within(link: re.Match[str], folder: str) -> str:
    picture, text, to, anchor = link[1], link[2], link[3], link[4] or ""
    path = posixpath.normpath(posixpath.join(folder, to))
    if path in PAGES:
        return f"{picture}[{text}]({PAGES[path]}{anchor})"
    name = path.removeprefix("docs/")
    if path.startswith("docs/") and name not in _LEFT_OUT:
        return f"{picture}[{text}]({name}{anchor})"
    return text if path in text else f"{text} (`{path}`)"
