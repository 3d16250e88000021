"""Check the built pages: links, alternative texts, headings, descriptions, and in Chromium their width and contrast.

    python docs/check_pages.py [--without-browser]

prints what is wrong and ends with 1 if anything is; `make check-pages` builds the pages first. Chromium opens each page
at 1400 and 390 pixels, in light and in dark colors.
"""

import argparse
import functools
import http.server
import json
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

from bs4 import BeautifulSoup

DOCS = Path(__file__).parent
BUILT = DOCS / "_build" / "html"
SITE = "http://site/"  # the pages among themselves
HOSTS = {
    "arxiv.org",
    "distributed.dask.org",
    "docs.dask.org",
    "docs.jax.dev",
    "doi.org",
    "gaussianprocess.org",
    "github.com",
    "numpy.org",
    "pandas.pydata.org",
    "proceedings.mlr.press",
    "scikit-learn.org",
    "www.cvxpy.org",
    "www.jmlr.org",
}
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MEASURE = DOCS / "measure_pages.html"  # runs in the browser
SILENCE = 60  # seconds without a result after which the browser is taken for dead


def pages():
    """Each built page by its address, parsed once."""
    return {
        path.relative_to(BUILT).as_posix(): BeautifulSoup(
            path.read_text(encoding="utf-8"), "html.parser"
        )
        for path in sorted(BUILT.rglob("*.html"))
        if "_static" not in path.relative_to(BUILT).parts
    }


def anchors(page):
    return {tag["id"] for tag in page.find_all(id=True)} | {
        tag["name"] for tag in page.find_all("a", attrs={"name": True})
    }


def faults_of_links(site):
    """Links, pictures, scripts and styles without a target in the tree, and unexpected addresses outside of it."""
    known = {name: anchors(page) for name, page in site.items()}
    outside = Counter()
    for name, page in site.items():
        for tag, attribute in (
            ("a", "href"),
            ("link", "href"),
            ("img", "src"),
            ("script", "src"),
        ):
            for link in (
                found[attribute]
                for found in page.find_all(tag, attrs={attribute: True})
            ):
                parts = urlsplit(urljoin(SITE + name, link))
                if (
                    parts.scheme == "data"
                    or f"{parts.scheme}://{parts.netloc}/" == SITE
                ):
                    target, anchor = (
                        unquote(parts.path).lstrip("/") or "index.html",
                        unquote(parts.fragment),
                    )
                    if parts.scheme != "data" and not (BUILT / target).is_file():
                        yield name, f"{link} is no file"
                    elif anchor and target in known and anchor not in known[target]:
                        yield name, f"{link} is no anchor of {target}"
                elif parts.scheme != "https" or parts.hostname not in HOSTS:
                    yield name, f"{link} is not a https address of a host in HOSTS"
                else:
                    outside[parts.hostname] += 1
    print(
        "links outside:",
        ", ".join(f"{host} {count}" for host, count in sorted(outside.items())),
    )


def faults_of_heads(site):
    """One h1, a title, a description of its own, and alternative texts for each page."""
    described = Counter(
        tag["content"]
        for page in site.values()
        for tag in page.find_all("meta", attrs={"name": "description"})
    )
    for name, page in site.items():
        made_by_sphinx = name == "search.html" or name.startswith("_modules/")
        if (count := len(page.find_all("h1"))) != 1:
            yield name, f"has {count} headings h1"
        if not (page.title and page.title.get_text(strip=True)):
            yield name, "has no title"
        descriptions = [
            tag["content"]
            for tag in page.find_all("meta", attrs={"name": "description"})
        ]
        if not made_by_sphinx and (len(descriptions) != 1 or len(descriptions[0]) < 30):
            yield (
                name,
                f"expected one description of 30 characters or more, got {descriptions}",
            )
        if not made_by_sphinx and any(described[text] > 1 for text in descriptions):
            yield name, f"shares its description with another page: {descriptions}"
        for picture in page.find_all("img"):
            decorates = "alt" in picture.attrs and picture.find_parent(
                class_="sphx-glr-thumbcontainer"
            )  # a title follows
            if not picture.get("alt", "").strip() and not decorates:
                yield name, f"{picture.get('src')} has no alternative text"


class Site(http.server.SimpleHTTPRequestHandler):
    """The built pages, the page that measures them, and its results."""

    def __init__(self, *args, names, results, **kwargs):
        self.names, self.results = names, results
        super().__init__(*args, directory=str(BUILT), **kwargs)

    def do_GET(self):
        answers = {
            "/measure": ("text/html", MEASURE.read_text(encoding="utf-8")),
            "/list": ("application/json", json.dumps(self.names)),
        }
        if self.path not in answers:
            return super().do_GET()
        kind, text = answers[self.path]
        self.send_response(200)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.end_headers()
        self.wfile.write(text.encode())
        return None

    def do_POST(self):
        self.results.put(
            json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        )
        self.send_response(204)
        self.end_headers()

    def log_message(self, *args):
        """Silence: what counts is printed at the end."""


def measured(browser, names):
    """What the browser reports of each page at each width."""
    results = queue.Queue()
    site = functools.partial(Site, names=names, results=results)
    with (
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), site) as server,
        tempfile.TemporaryDirectory() as profile,
    ):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        quiet = (
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
        )
        process = subprocess.Popen(
            [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", *quiet, "--hide-scrollbars",
             "--window-size=1500,1000", f"--user-data-dir={profile}", f"http://127.0.0.1:{server.server_port}/measure"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            while (report := results.get(timeout=SILENCE)) is not None:
                yield report
        finally:
            process.terminate()
            process.wait()
            server.shutdown()


def faults_seen(browser, names):
    """Pages and blocks that scroll sideways, and text that is hard to read."""
    for report in measured(browser, names):
        name = f"{report['page']} at {report['width']} px"
        if "error" in report:
            yield name, report["error"]
            continue
        if report["over"] > 0:
            yield name, f"scrolls sideways by {report['over']} px"
        if report["width"] == 1400:
            for place, excess in report["wide"].items():
                yield name, f"a block scrolls sideways by {excess} px: {place}"
        for theme, found in report["pale"].items():
            for place, ratio in found.items():
                yield name, f"contrast in {theme} colors: {ratio} in {place}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--without-browser",
        action="store_true",
        help="check links, heads and texts only",
    )
    chosen = parser.parse_args()
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if not (BUILT / "index.html").exists():
        sys.exit(f"Expected pages in {BUILT}; build them first: make docs")
    if browser is None and not chosen.without_browser:
        names = ", ".join(BROWSERS)
        sys.exit(
            f"Expected Chromium ({names}) to measure width and contrast; install it, or pass --without-browser"
        )

    site = pages()
    faults = [*faults_of_links(site), *faults_of_heads(site)]
    if not chosen.without_browser:
        faults += faults_seen(browser, list(site))
    for name, fault in faults:
        print(f"{name}: {fault}")
    print(f"{len(site)} pages, {len(faults)} faults")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
