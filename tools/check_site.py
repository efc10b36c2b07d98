"""Check links, images, anchors, formulas and search of a built site, and that wide parts scroll.

python tools/check_site.py docs/_build/html
"""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# Elements that may be wider than a narrow page, and classes of boxes that scroll sideways (by the
# theme or docs/_static/style.css).
WIDE = {"table", "pre"}
SCROLLING = {"pst-scrollable-table-container", "output", "cell_output", "highlight"}
# Elements that the page itself puts into a formula; others are LaTeX that was not escaped.
IN_FORMULAS = {"span", "a"}
# Elements whose files a browser loads with the page.
LOADING = {"img", "link", "script"}
EMPTY = {
    "area",
    "base",
    "br",
    "col",
    "embed",
    "hr",
    "img",
    "input",
    "link",
    "meta",
    "source",
    "wbr",
}


class Page(HTMLParser):
    """Links of a page, its anchors, and elements where they should not be."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.anchors: set[str] = {""}
        self.misplaced: list[str] = []
        self.inside: list[tuple[str, set[str]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect one element."""
        classes = set((dict(attrs).get("class") or "").split())
        if tag in WIDE and not any(SCROLLING & there for _, there in self.inside):
            self.misplaced.append(f"{tag} does not scroll")
        if tag not in IN_FORMULAS and any("math" in there for _, there in self.inside):
            self.misplaced.append(f"<{tag}> breaks a formula")
        loaded = dict(attrs).get("href" if tag == "link" else "src") or ""
        if tag in LOADING and urlsplit(loaded).netloc:
            self.misplaced.append(f"{loaded} needs the network")
        if tag not in EMPTY:
            self.inside.append((tag, classes))
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            elif name in ("href", "src") and value is not None:
                self.targets.append(value)

    def handle_endtag(self, tag: str) -> None:
        """Leave an element, and those within it that have no end of their own."""
        tags = [name for name, _ in self.inside]
        if tag in tags:
            del self.inside[len(tags) - 1 - tags[::-1].index(tag) :]


def broken(site: Path) -> list[str]:
    """Errors of a site; empty if there are none."""
    files = sorted(path for path in site.rglob("*.html") if "_static" not in path.parts)
    pages = {path: Page(path.read_text()) for path in files}
    found = []
    for path, page in pages.items():
        found += [f"{path.relative_to(site)}: {what}" for what in page.misplaced]
        for target in page.targets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            there = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not there.is_file():
                found.append(f"{path.relative_to(site)}: no {target}")
            elif there in pages and unquote(parts.fragment) not in pages[there].anchors:
                found.append(f"{path.relative_to(site)}: no place {target}")
    index = (site / "searchindex.js").read_text()
    listed = set(re.findall(r'"([^"]+)"', index.split('"docnames":[')[1].split("]")[0]))
    written = {str(path.relative_to(site).with_suffix("")) for path in pages}
    unlisted = written - listed - {"py-modindex", "search"}
    return found + [f"search does not know {name}" for name in sorted(unlisted)]


if __name__ == "__main__":
    complaints = broken(Path(sys.argv[1]).resolve())
    sys.exit("\n".join(complaints) or None)
