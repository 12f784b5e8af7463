"""How soon the page is painted, how much it loads, how smooth it stays, and whether everybody can use it.

A scene of four groups on loopback, in Debian's Chromium. First contentful paint is the median of ten cold loads; the
rival is the same page as dashboards are usually built: charts' script in the head, data asked for afterwards. Frames
are timed while a group of 1,000 partitions is zoomed and its cursor moved.

    python -m benchmarks.page [--loads 10] [--partitions 1000]
"""

from __future__ import annotations

import argparse
import re
import statistics
from typing import Any

from benchmarks.figures import keep_figures
from tests.integration.page import scene

PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
SCRIPT = '<script src="/page/bokeh.js"></script><script src="/page/bokeh-api.js"></script></head>'


def paint(browser: Any, url: str, usual: bool) -> float:
    """Return the first contentful paint of a cold load, milliseconds."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    if usual:

        def rewrite(route: Any) -> None:
            answer = route.fetch()
            text = re.sub(r'<script type="application/json" id="first">.*?</script>', "", answer.text(), flags=re.S)
            route.fulfill(response=answer, body=text.replace("</head>", SCRIPT))

        page.route(re.compile(r"127\.0\.0\.1:\d+/$"), rewrite)
    page.goto(url, wait_until="load")
    while page.evaluate(PAINT) is None:  # the page's policy forbids wait_for_function, which is text made a script
        page.wait_for_timeout(20)
    found = float(page.evaluate(PAINT))
    context.close()
    return found


def loaded(browser: Any, url: str) -> float:
    """Return kilobytes on the wire until a group's charts stand, of the page and its scripts (data left out)."""
    context = browser.new_context()
    page = context.new_page()
    client, sizes, urls = context.new_cdp_session(page), {}, {}
    client.send("Network.enable")
    client.on("Network.responseReceived", lambda e: urls.update({e["requestId"]: e["response"]["url"]}))
    client.on("Network.loadingFinished", lambda e: sizes.update({e["requestId"]: e["encodedDataLength"]}))
    page.goto(f"{url}/#group=orders&hours=24", wait_until="load")
    page.wait_for_selector("#stack[data-ready]")
    total = sum(size for request, size in sizes.items() if "/v1/" not in urls.get(request, ""))
    context.close()
    return total / 1000


def usable(browser: Any, url: str) -> tuple[int, int]:
    """Return broken accessibility rules and console errors, over both views, light and dark."""
    from axe_playwright_python.sync_playwright import Axe

    broken, errors = 0, []
    for theme in ("light", "dark"):
        for where, ready in (("/", "#groups tr[data-group]"), ("/#group=orders&hours=24", "#stack[data-ready]")):
            context = browser.new_context(color_scheme=theme)
            page = context.new_page()
            page.on("console", lambda m: errors.append(m.text) if m.type in ("error", "warning") else None)
            page.on("pageerror", lambda e: errors.append(str(e)))
            page.goto(f"{url}{where}")
            page.wait_for_selector(ready)
            broken += Axe().run(page).violations_count
            context.close()
    return broken, len(errors)


def frames(browser: Any, partitions: int) -> list[float]:
    """Return how long frames took, milliseconds, with a group of so many partitions."""
    with scene.served(scene.build(partitions=partitions)) as url:
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        page = context.new_page()
        page.goto(f"{url}/#group=orders&hours=24&expected=1h")
        page.wait_for_selector("#stack[data-ready]", timeout=120_000)
        page.wait_for_timeout(1500)
        found: list[float] = page.evaluate(scene.FRAMES)
        context.close()
    return sorted(found)


def main() -> None:
    """Measure, print a table, and keep the result."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--loads", type=int, default=10)
    parser.add_argument("--partitions", type=int, default=1000)
    chosen = parser.parse_args()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=scene.CHROMIUM, args=scene.FLAGS)
        with scene.served(scene.build()) as url:
            paint(browser, f"{url}/", False)  # the browser's own first start
            ours = [paint(browser, f"{url}/", False) for _ in range(chosen.loads)]
            rival = [paint(browser, f"{url}/", True) for _ in range(chosen.loads)]
            size = loaded(browser, url)
            broken, errors = usable(browser, url)
        took = frames(browser, chosen.partitions)
        version = browser.version
        browser.close()
    figures = {
        "fcp_ms_median": round(statistics.median(ours), 1),
        "fcp_ms": [round(v, 1) for v in ours],
        "rival_fcp_ms_median": round(statistics.median(rival), 1),
        "first_load_kb_gzip": round(size, 1),
        "axe_violations": broken,
        "console_errors": errors,
        "partitions": chosen.partitions,
        "frames": len(took),
        "frame_ms_median": round(took[len(took) // 2], 1),
        "frame_ms_p95": round(took[int(len(took) * 0.95)], 1),
        "frame_ms_max": round(took[-1], 1),
        "chromium": version,
    }
    for name, value in figures.items():
        print(f"{name:<24}{value}")
    keep_figures("page", figures, ("bokeh", "playwright", "uvicorn"))


if __name__ == "__main__":
    main()
