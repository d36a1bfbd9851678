"""Builds the site: the documentation, the course and the public names as static HTML, which works offline, with search.

    pip install ".[docs]"
    python -m tools.site          then open build/site/index.html

1. Pages are copied to build/pages, in the folders they are in, and the public names (tools/api.py) are written there.
2. A file of source that a page links to becomes a page, too, so that no link leads out of the site. A name that a chapter
   says a file defines is a link to its line, as the file has it today.
3. The builder, Zensical, makes HTML of them; a link that leads nowhere is an error.
"""

from __future__ import annotations

import ast
import json
import posixpath
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import tyro

from tools import api
from tools.pages import ROOT, course

BUILD = ROOT / "build"
LINK = re.compile(r"(\]\()([^)\s#]+)(#[\w-]*)?(\))")
ROW = re.compile(
    r"^(- \[[^]]*\]\(([^)#]+\.py)\): )((?:`[\w.]+`(?:, )?)+)", re.MULTILINE
)  # a file, and names that it defines
LINE_ID = "line"  # of a page of source: line-0-17 is its line 17
OUTPUT = re.compile("^```text$", re.MULTILINE)  # of the block above; the builder writes its class, not its language
LANGUAGES = {".py": "python", ".h": "cpp", ".cu": "cpp", ".sh": "bash", ".toml": "toml"}
AS_THEY_ARE = (".svg", ".png", ".html", ".gz")
# Pages for users; the others are for those who read on.
USE = ("train", "from_pytorch", "models", "nano", "chat", "devices", "kernels", "settings", "verify")
# Outputs have a line at their left and no copy button; lines of code fit a wide screen; columns are as wide as what is in
# them. Tables of eight columns or more, such as those of ladders, are set small, to fit a wide screen; on a narrow one they
# are moved in their box, and the names of rows stay.
STYLE = """
@media (min-width: 76.25em) { .md-grid { max-width: 74rem; } }
.md-typeset .output pre > code { background: transparent; border-left: .15rem solid #8888; border-radius: 0; }
.md-typeset .output .md-code__nav { display: none; }
.md-typeset img { background: #fff; border-radius: 4px; }
.md-typeset table:not([class]) th { min-width: 0; }
.md-typeset table:not([class]) td code { white-space: nowrap; }
.md-typeset table:not([class]):has(th:nth-child(8)) { font-size: .56rem; overflow: visible; }
.md-typeset table:not([class]):has(th:nth-child(8)) :is(th, td) { padding: .5em .4em; }
.md-typeset table:not([class]):has(th:nth-child(8)) td:nth-child(2) { min-width: 13em; }
.md-typeset table:not([class]):has(th:nth-child(8)) :is(th, td):first-child {
  position: sticky; left: 0; max-width: 8em; background: var(--md-default-bg-color);
}
"""
# Search runs in a worker, which browsers refuse to pages that are opened as files: there its script runs in a hidden frame.
# Messages are copied, as a worker's are: both sides change what they were sent, and else the field forgets each letter.
WORKER = """
if (location.protocol === "file:") window.Worker = class {
  constructor(url) {
    this.frame = document.createElement("iframe");
    this.frame.hidden = true;
    document.body.appendChild(this.frame);
    const inside = this.frame.contentWindow;
    inside.postMessage = data => {
      const copy = structuredClone(data);
      setTimeout(() => this.onmessage && this.onmessage({data: copy}));
    };
    const script = inside.document.createElement("script");
    this.ready = new Promise((loaded, failed) => { script.onload = loaded; script.onerror = failed; });
    this.ready.catch(error => this.onerror && this.onerror(error));
    script.src = new URL(url, location.href).href;
    inside.document.body.appendChild(script);
  }
  postMessage(data) {
    const copy = structuredClone(data);
    this.ready.then(() => this.frame.contentWindow && this.frame.contentWindow.onmessage({data: copy}));
  }
  terminate() { this.frame.remove(); }
};
"""


def main() -> int:
    """Builds the site of all pages; returns the exit status of the builder."""
    pages = BUILD / "pages"
    shutil.rmtree(pages, ignore_errors=True)
    copy_pages(pages)
    (pages / "style.css").write_text(STYLE)
    (pages / "iframe-worker.js").write_text(WORKER)
    config = BUILD / "mkdocs.yml"
    config.write_text(json.dumps(settings(pages), indent=1))  # JSON is YAML, too
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict", "--config-file", str(config)]
    return subprocess.run(command, cwd=BUILD).returncode


def copy_pages(folder: Path) -> None:
    """Writes all pages to a folder, with those of the source files that they link to."""
    waiting = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]
    linked: set[Path] = set()
    for page in waiting:
        place = folder / page.relative_to(ROOT).with_name("index.md" if page.name == "README.md" else page.name)
        place.parent.mkdir(parents=True, exist_ok=True)
        text = ROW.sub(partial(with_lines, page=page), OUTPUT.sub("```{.text .output}", page.read_text()))
        place.write_text(LINK.sub(partial(relinked, page=page, linked=linked), text))
    for path in [path for kind in AS_THEY_ARE for path in ROOT.glob(f"docs/**/*{kind}")]:
        place = folder / path.relative_to(ROOT)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, place)
    for source in sorted(linked):
        write_source(source, folder)
    (folder / "api").mkdir()
    for name, text in api.pages().items():
        (folder / "api" / name).write_text(text)


def relinked(match: re.Match[str], page: Path, linked: set[Path]) -> str:
    """Returns a link as it is in the site; a file or folder of source is noted in `linked`."""
    before, target, anchor, after = match.groups()
    there = (page.parent / target).resolve()
    if not there.exists():  # elsewhere, or a call in a line of code; the builder reports a wrong link
        return match[0]
    if there.is_dir() or there.suffix not in (".md", *AS_THEY_ARE):
        linked.add(there)
        target = posixpath.normpath(target) + ("/index.md" if there.is_dir() else ".md")
    elif there.name == "README.md":
        target = posixpath.join(posixpath.dirname(target), "index.md")
    return f"{before}{target}{anchor or ''}{after}"


def with_lines(match: re.Match[str], page: Path) -> str:
    """Returns a row in which each name that its file defines is a link to the line."""
    link = match[2]
    lines = defined((page.parent / link).resolve())
    return match[1] + re.sub(r"`([\w.]+)`", lambda name: f"[{name[0]}]({link}#{LINE_ID}-0-{lines[name[1]]})", match[3])


def defined(path: Path) -> dict[str, int]:
    """Returns the names that a file of Python defines, methods and fields as Class.name, with their lines."""
    found: dict[str, int] = {}

    def visit(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                visit(node.body, f"{prefix}{node.name}.")
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                found[prefix + node.name] = node.lineno
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            found.update({prefix + target.id: node.lineno for target in targets if isinstance(target, ast.Name)})

    visit(ast.parse(path.read_text()).body, "")
    return found


def write_source(source: Path, folder: Path) -> None:
    """Writes a page that shows a file of source, or lists the files of a folder and shows them."""
    name = source.relative_to(ROOT)
    if source.is_dir():
        files = sorted(path for path in source.iterdir() if path.suffix == ".py" and path.name != "__init__.py")
        for path in files:
            write_source(path, folder)
        text = f"# {name}\n\n" + "".join(f"- [{path.name}]({path.name}.md)\n" for path in files)
        place = folder / name / "index.md"
    else:
        opening = f'````{{.{LANGUAGES.get(source.suffix, "text")} linenums="1"}}'
        text = f"---\nhide: [navigation, toc]\n---\n\n# {name}\n\n{opening}\n{source.read_text()}````\n"
        place = folder / f"{name}.md"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)


def settings(pages: Path) -> dict[str, object]:
    """Returns what the builder is told: names, navigation, look."""
    others = [name for name in sorted(path.stem for path in (pages / "docs").glob("*.md")) if name not in USE]
    history = sorted(path.name for path in (pages / "docs" / "history").glob("*.md"))
    nav = [
        {"picograd": "index.md"},
        {"Course": ["docs/course/index.md", *(f"docs/course/{path.name}" for path in course())]},
        {"Use it": [f"docs/{name}.md" for name in USE]},
        {"Read it": ["ARCHITECTURE.md", *(f"docs/{name}.md" for name in others), "CONTRIBUTING.md"]},
        {"Lab book": [f"docs/history/{name}" for name in history]},
        {"Names": ["api/index.md", *(f"api/{name}" for name in list(api.pages())[1:])]},
    ]
    return {
        "site_name": "picograd",
        "docs_dir": "pages",
        "site_dir": "site",
        "nav": nav,
        "extra_css": ["style.css"],
        "plugins": ["search", "offline"],
        # A polyfill of this name takes the place of one that would be fetched from the network.
        "extra": {"polyfills": [{"path": "iframe-worker.js", "type": "text/javascript", "async": False, "defer": False}]},
        "theme": {
            "language": "en",
            "font": False,  # those of the reader's machine: nothing is fetched
            "features": [f"navigation.{part}" for part in ("tabs", "top", "footer", "indexes")] + ["content.code.copy"],
            "palette": [
                {"scheme": "default", "toggle": {"icon": "lucide/sun", "name": "dark"}},
                {"scheme": "slate", "toggle": {"icon": "lucide/moon", "name": "light"}},
            ],
        },
        "markdown_extensions": [
            "attr_list", "tables", "sane_lists", "pymdownx.superfences", "pymdownx.inlinehilite",
            {"pymdownx.highlight": {"line_spans": LINE_ID, "linenums_style": "pymdownx-inline"}},
            {"toc": {"permalink": True}},
        ],
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(tyro.cli(main, prog="python -m tools.site"))
