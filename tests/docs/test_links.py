"""The pages lead where they say, none is forgotten, and figures are those of the page that has them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md")), *sorted(ROOT.glob("examples/*/*.md"))]
NUMBER = re.compile(r"\d+\.\d+")
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Return the names of a page's headings, as a link has them."""
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    named = [re.sub(r"[^\w\- ]", "", heading) for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)]
    slugs = [name.strip().lower().replace(" ", "-") for name in named]
    repeats = [slugs[:place].count(slug) for place, slug in enumerate(slugs)]
    return {f"{slug}-{repeat}" if repeat else slug for slug, repeat in zip(slugs, repeats, strict=True)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    """To a file that is there, and a heading that it has."""
    links = re.findall(r"\]\(([^)\s]+)\)", FENCED.sub("", page.read_text(encoding="utf-8")))
    for link in links:
        if re.match(r"https?:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_the_index_names_each_page() -> None:
    """A reader finds them all from docs/README.md."""
    named = set(re.findall(r"\]\(([\w/-]+\.md)\)", (DOCS / "README.md").read_text(encoding="utf-8")))
    there = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    assert there - named == {"README.md"}


def test_the_readme_is_short() -> None:
    """A person reads it in three minutes (issue 8)."""
    assert (ROOT / "README.md").read_text(encoding="utf-8").count("\n") <= 150


def test_the_figures_of_the_readme_stand_on_the_page_of_figures() -> None:
    """With the command that prints them: nothing there is typed by hand."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    figures = readme.partition("## Figures\n")[2].partition("\n## ")[0]
    page = (DOCS / "performance.md").read_text(encoding="utf-8")
    runs = page.partition("<!-- bench: runs -->")[2].partition("<!-- end -->")[0]
    rows = re.findall(r"^\| [^|]* \| ([^|]*\d[^|]*) \| `python tools/bench\.py ([\w-]+)` \|$", figures, re.MULTILINE)
    assert len(rows) == figures.count("\n| ") - 1
    for figure, workload in rows:
        table = page.partition(f"<!-- bench: {workload} -->")[2].partition("<!-- end -->")[0]
        measured = {
            float(number)
            for row in re.findall(r"^.*\| ours \|(.*)$", table, re.MULTILINE)
            for number in NUMBER.findall(row)
        }
        assert {float(number) for number in NUMBER.findall(figure)} <= measured, figure
        assert re.search(rf"bench\.py [^`]*\b{workload}\b", runs), workload
