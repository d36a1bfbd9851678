"""The site that `python -m tools.site` builds: whole, without a warning, and without anything from the network."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tools import site
from tools.pages import ROOT, course


@pytest.mark.req("J14")
@pytest.mark.variants(first=1)
def test_the_site_has_every_chapter_and_fetches_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("zensical") is None:
        pytest.skip('zensical is not installed: pip install ".[docs]"')
    monkeypatch.setattr(site, "BUILD", tmp_path)
    assert site.main() == 0
    pages = {path.relative_to(tmp_path / "site"): path.read_text() for path in (tmp_path / "site").rglob("*.html")}
    assert {f"docs/course/{path.stem}.html" for path in course()} <= set(map(str, pages))
    for path, text in pages.items():
        fetched = re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="?(https?:[^"> ]+)', text)
        assert not [url for url in fetched if "canonical" not in url], f"{path} fetches {fetched}"
    for path in course():
        folder = Path("docs/course")
        for link, anchor in re.findall(r'href="?([^"> #]+\.py\.html)#([^"> ]+)', pages[folder / f"{path.stem}.html"]):
            there = pages[Path(os.path.normpath(folder / link))]
            assert re.search(f'id="?{anchor}"?[ >]', there), f"{path.name} links to {link}#{anchor}"
    outputs = [len(re.findall("^```text$", path.read_text(), re.MULTILINE)) for path in course()]
    marked = [pages[Path(f"docs/course/{path.stem}.html")].count('class="output highlight"') for path in course()]
    assert marked == outputs and ".output" in (tmp_path / "site" / "style.css").read_text()
    found = (tmp_path / "site" / "search.js").read_text()
    assert all(path.read_text().split("\n")[0].removeprefix("# ")[:20] in found for path in course())


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not on PATH")
def test_messages_of_the_search_are_copies_as_those_of_a_worker_are() -> None:
    """Changes that are made after a message was sent, or by the other side, do not show here."""
    page = """
    const inside = {document: {createElement: () => ({}), body: {appendChild: script => script.onload()}}};
    globalThis.window = globalThis;
    globalThis.location = {protocol: "file:", href: "file:///site/index.html"};
    globalThis.document = {createElement: () => ({contentWindow: inside}), body: {appendChild() {}}};
    """
    talk = """
    const worker = new Worker("search.js"), sent = {query: "wgm"}, answer = {query: ""};
    inside.onmessage = ({data}) => {
      console.log(data.query); data.query = ""; inside.postMessage(answer); answer.query = "later";
    };
    worker.onmessage = ({data}) => console.log(JSON.stringify([data, data === answer, sent]));
    worker.postMessage(sent);
    sent.query += "m";
    """
    done = subprocess.run(["node", "-"], input=page + site.WORKER + talk, capture_output=True, text=True, check=False)
    assert done.stdout == 'wgm\n[{"query":""},false,{"query":"wgmm"}]\n', done.stdout + done.stderr


def test_pages_of_the_site_link_to_pages_and_files_that_are_there(tmp_path: Path) -> None:
    site.copy_pages(tmp_path)
    assert {path.name for path in course()} <= {path.name for path in (tmp_path / "docs" / "course").iterdir()}
    pages = [path for path in tmp_path.rglob("*.md") if path.relative_to(tmp_path).parts[0] == "docs"]
    for page in [tmp_path / "index.md", *pages]:
        prose = re.sub(r"^ *```.*?^ *```|`[^`\n]*`", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for _, target, _, _ in site.LINK.findall(prose):
            assert ":" in target or (page.parent / target).exists(), f"{page.relative_to(tmp_path)} links to {target}"


def test_names_of_a_row_are_links_to_their_lines(tmp_path: Path) -> None:
    """Names that a file defines become links when the site is built; other words of code in such a row stay as they are."""
    (tmp_path / "a.py").write_text("X = 1\n\n\nclass A:\n    y: int\n\n    def z(self):\n        pass\n")
    rows = "- [a](a.py): `X`, `A.y`, `A.z`: as `A.y`\n- [b](b.md): `X`: other\n"
    assert site.ROW.sub(lambda match: site.with_lines(match, tmp_path / "page.md"), rows) == (
        "- [a](a.py): [`X`](a.py#line-0-1), [`A.y`](a.py#line-0-5), [`A.z`](a.py#line-0-7): as `A.y`\n"
        "- [b](b.md): `X`: other\n"
    )


def test_links_to_files_of_source_lead_to_pages_that_show_them() -> None:
    linked: set[Path] = set()
    page = ROOT / "docs" / "course" / "README.md"
    text = "[a](../../picograd/ir/op.py#x) [b](../../examples/) [c](../../README.md) [d](https://a.b) f[e](**g)"
    there = site.LINK.sub(lambda match: site.relinked(match, page, linked), text)
    assert there == (
        "[a](../../picograd/ir/op.py.md#x) [b](../../examples/index.md) [c](../../index.md) [d](https://a.b) f[e](**g)"
    )
    assert linked == {ROOT / "picograd" / "ir" / "op.py", ROOT / "examples"}
