"""What a look at the README's text tells."""

from __future__ import annotations

import re

from tests.readme.console import CHECKOUT, README


def test_the_readme_stays_within_150_lines() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 150


def test_every_link_of_the_readme_leads_to_a_file_of_the_repository() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README.read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not (CHECKOUT / link).exists()] == []


def test_every_page_of_the_docs_is_linked() -> None:
    pages = {str(path.relative_to(CHECKOUT)) for path in (CHECKOUT / "docs").iterdir() if path.is_file()}
    links = set(re.findall(r"\]\(([^)#]+)", README.read_text(encoding="utf-8")))
    assert pages - links == set()
