"""Read a page through BrowserGym: its accessibility tree and its DOM snapshot.

It calls private functions of BrowserGym 0.14.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from components.environments.browser.engine.page_scripts import HIDE_OUT_OF_VIEW, LARGE_PAGE, SHOW_HIDDEN


def capture_page(page: Any, *, lenient: bool) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return BrowserGym's merged accessibility tree of a page, and its DOM snapshot.

    The page is marked for the reading and left as it was. The tree of a page of megabytes takes half a minute
    to fetch, mostly for elements out of view, which no state shows. Large pages leave these out.
    """
    from browsergym.core.observation import (
        _post_extract,
        _pre_extract,
        extract_dom_snapshot,
        extract_merged_axtree,
    )

    _pre_extract(page, lenient=lenient)
    snapshot = extract_dom_snapshot(page, include_dom_rects=False, include_paint_order=False)
    page.evaluate(HIDE_OUT_OF_VIEW, LARGE_PAGE)
    tree = extract_merged_axtree(page)
    page.evaluate(SHOW_HIDDEN)
    _post_extract(page)
    return tree, snapshot
