"""Mends what screen readers and keyboards stumble on in the theme's pages.

``scripts/accessibility.py`` finds it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

# What the theme writes, and what it should.
MENDED = {
    '<p class="caption" role="heading">': '<p class="caption" role="heading" aria-level="2">',
    '<aside class="sidebar-drawer">': '<aside class="sidebar-drawer" aria-label="Pages">',
    '<aside class="toc-drawer">': '<aside class="toc-drawer" aria-label="On this page">',
    '<th class="head"><p></p></th>': '<td class="head"></td>',
}
# Code that is wider than a phone scrolls by keys once it can have the focus.
CODE = re.compile(r'(<div class="highlight"><pre)(?=>)')
# Parameters one below the other are a list, not definitions without terms.
PARAMETERS = re.compile(r'<dl>\n(<dd><em class="sig-param">.*?)</dl>', re.DOTALL)


def mend_pages(app: Any, error: Exception | None) -> None:
    """Mend every page of the site."""
    if error is not None or app.builder.format != "html":
        return
    for page in Path(app.outdir).rglob("*.html"):
        if "_static" not in page.parts:
            page.write_text(mended(page.read_text(encoding="utf-8"), page.name), encoding="utf-8")


def mended(html: str, name: str) -> str:
    """Return a page's text, mended; twice changes nothing."""
    for wrong, right in MENDED.items():
        html = html.replace(wrong, right)
    html = CODE.sub(r'\1 tabindex="0"', html)
    html = PARAMETERS.sub(_as_list, html)
    if name == "search.html" and "<h1" not in html:
        html = html.replace("<noscript>", "<h1>Search</h1>\n<noscript>", 1)
    return html


def _as_list(parameters: re.Match[str]) -> str:
    items = parameters[1].replace("<dd>", "<li>").replace("</dd>", "</li>")
    return f'<ul class="sig-params">\n{items}</ul>'
