"""The annotation interface and the report in Chromium, with mouse and keyboard. Two minutes: `make test-slow`."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import nbformat
import pytest

from lib.metrics import EmbeddingClusterer
from lib.paths import OUTPUTS, ROOT
from lib.report import page as report_page

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is missing: pip install -e '.[dev]'")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is missing: install the system's package chromium"),
]

# A slow machine that trains a model beside the test.
PATIENCE = 120
TOKEN = "only-for-this-test"
CELL = """\
import os
from pathlib import Path
from lib.annotation import Annotator, Item, Screen

Path("kernel.pid").write_text(str(os.getpid()))
steps = ("Spread a newspaper.", "Shake off the <img src=x onerror=alert(1)> soil.", "Set the fern into its new pot.")
places = ("shelf", "table", "sill")
items = [Item(f"fern||{n}", "Repot a Fern", steps, n, f"place of fern was {places[n - 1]} before") for n in (1, 2, 3)]
screen = Screen("change", "Judge from the text.", "How sure is this?", ("certain", "uncertain", "impossible"))
Annotator(items, screen, "votes.jsonl", "a1")
"""


@pytest.fixture
def folder(tmp_path):
    """Return a folder with one notebook."""
    folder = tmp_path / "notebooks"
    folder.mkdir()
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL), nbformat.v4.new_code_cell("1 + 1")])
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, folder / "fern.ipynb")
    settings = tmp_path / "settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    # Its question about news would lie over the notebook.
    quiet = {"fetchNews": "false", "checkForUpdates": False}
    (settings / "notification.jupyterlab-settings").write_text(json.dumps(quiet))
    return folder


@pytest.fixture
def browser():
    """Return a headless Chromium."""
    with sync_api.sync_playwright() as playwright:
        sync_api.expect.set_options(timeout=1000 * PATIENCE)
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=1000 * PATIENCE)
        yield browser
        browser.close()


@contextmanager
def jupyterlab(folder):
    """Run a JupyterLab that knows nothing of the user's settings; yield its address."""
    home = folder.parent
    names = {"HOME": "home", "JUPYTER_CONFIG_DIR": "config", "JUPYTER_DATA_DIR": "data", "IPYTHONDIR": "ipython",
             "JUPYTER_RUNTIME_DIR": "runtime", "JUPYTERLAB_SETTINGS_DIR": "settings",
             "JUPYTERLAB_WORKSPACES_DIR": "workspaces"}  # fmt: skip
    environment = {**os.environ, **{key: str(home / name) for key, name in names.items()}, "PYTHONPATH": str(ROOT)}
    options = {"ip": "127.0.0.1", "port": 0, "token": TOKEN, "root_dir": folder, "allow_root": True}
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--LabApp.extension_manager=readonly"]
    command += [f"--ServerApp.{key}={value}" for key, value in options.items()]
    with open(home / "server.log", "a") as log:
        server = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=subprocess.STDOUT)
    try:
        yield address(server, home)
    finally:
        server.terminate()
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def address(server, home) -> str:
    """Wait until a server says where it listens."""
    said = home / "runtime" / f"jpserver-{server.pid}.json"
    for _ in range(5 * PATIENCE):
        if server.poll() is not None:
            break
        if said.exists() and said.read_text().rstrip().endswith("}"):
            return json.loads(said.read_text())["url"]
        time.sleep(0.2)
    pytest.fail(f"JupyterLab does not start:\n{(home / 'server.log').read_text()[-3000:]}")


@contextmanager
def opened(browser, url):
    """Open the notebook; every error in the browser's console is an error of the test."""
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    page.set_default_timeout(1000 * PATIENCE)
    errors = []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    # Leaving an unsaved notebook asks back.
    page.on("dialog", lambda dialog: dialog.accept() if dialog.type == "beforeunload" else errors.append("alert"))
    page.goto(f"{url}lab/tree/fern.ipynb?token={TOKEN}")
    yield page
    assert errors == []
    page.close()


def run_cell(page, folder):
    """Run the first cell as a user does and wait for the interface of this very run."""
    (folder / "kernel.pid").unlink(missing_ok=True)
    # Before this the kernel is still starting, and what is run is lost.
    page.get_by_text("Python 3 (ipykernel) | Idle").wait_for()
    page.locator(".jp-CodeCell .cm-content").first.click()
    page.keyboard.press("Shift+Enter")
    wait_for(folder / "kernel.pid")
    page.get_by_label("Key:").wait_for()


def wait_for(path):
    """Wait until a file is there."""
    for _ in range(5 * PATIENCE):
        if path.exists():
            return
        time.sleep(0.2)
    pytest.fail(f"{path.name} was not written in {PATIENCE} s")


def expect_item(page, count, place):
    """Wait until an item is on screen."""
    sync_api.expect(page.get_by_text(f"{count} of 3", exact=True)).to_be_visible()
    sync_api.expect(page.get_by_text(f"place of fern was {place} before")).to_be_visible()


def votes(folder) -> list[str]:
    """Return number of the item and vote of each line of the votes file."""
    rows = map(json.loads, (folder / "votes.jsonl").read_text().splitlines())
    return [f"{row['item'].removeprefix('fern||')} {row['vote']}" for row in rows]


def test_mouse_and_keyboard_vote_and_a_reload_goes_on_with_the_next_item(folder, browser):
    with jupyterlab(folder) as url, opened(browser, url) as page:
        run_cell(page, folder)
        expect_item(page, 0, "shelf")
        sync_api.expect(page.locator("li", has_text="Shake off the <img src=x onerror=alert(1)> soil.")).to_be_visible()
        page.get_by_role("button", name="1 certain").click()
        expect_item(page, 1, "table")
        assert votes(folder) == ["1 certain"]
        # The click left the focus in the field, so that keys arrive without another click.
        sync_api.expect(page.get_by_label("Key:")).to_be_focused()
        page.keyboard.press("2")
        expect_item(page, 2, "sill")
        page.keyboard.press("0")
        expect_item(page, 1, "table")
        page.keyboard.press("3")
        expect_item(page, 2, "sill")
        assert votes(folder) == ["1 certain", "2 uncertain", "2 withdrawn", "2 impossible"]
        page.reload()
        run_cell(page, folder)
        expect_item(page, 2, "sill")


def test_votes_survive_a_killed_kernel_and_a_new_server(folder, browser):
    with jupyterlab(folder) as url, opened(browser, url) as page:
        run_cell(page, folder)
        page.get_by_label("Key:").click()
        page.keyboard.press("Tab")
        page.keyboard.press("Space")
        expect_item(page, 1, "table")
        os.kill(int((folder / "kernel.pid").read_text()), signal.SIGKILL)
        page.get_by_role("dialog").get_by_role("button", name="Ok").click()
        run_cell(page, folder)
        expect_item(page, 1, "table")
        page.get_by_label("Key:").click()
        for key in ("Tab", "Tab", "Enter"):
            page.keyboard.press(key)
        expect_item(page, 2, "sill")
    with jupyterlab(folder) as url, opened(browser, url) as page:
        run_cell(page, folder)
        expect_item(page, 2, "sill")
        page.get_by_label("Key:").click()
        page.keyboard.press("3")
        sync_api.expect(page.get_by_text("All 3 items are done")).to_be_visible()
    assert votes(folder) == ["1 certain", "2 uncertain", "3 impossible"]


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Return the report of the committed results as a file."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(report_page.render("laptop", EmbeddingClusterer()), encoding="utf-8")
    return path


@contextmanager
def read(browser, path, width=1200):
    """Open the report offline; every error in the console and every request for another file is one of the test."""
    context = browser.new_context(viewport={"width": width, "height": 900}, offline=True, reduced_motion="reduce")
    page = context.new_page()
    errors = []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda asked: errors.append(asked.url) if not asked.url.startswith(("data:", "file:")) else None)
    page.goto(path.as_uri())
    yield page
    assert errors == []
    context.close()


def said(run) -> list[dict]:
    """Return what a committed run's model said about the sample's steps."""
    lines = (OUTPUTS / "laptop" / run / "sample_predictions.jsonl").read_text(encoding="utf-8").splitlines()
    return list(map(json.loads, lines))


def test_the_explorer_is_used_by_keyboard_and_shows_what_the_file_says(report, browser):
    rows = said("03_baselines/bart")
    with read(browser, report) as page:
        card = page.locator("#cards article").filter(has=page.get_by_role("heading", name="BART", exact=True))
        assert card.locator("li span").all_inner_texts() == list(dict.fromkeys(rows[0]["answers"]))
        page.get_by_label("Procedure").focus()
        for key in ("Tab", "Tab", "Enter"):  # the step before is disabled: the list of steps, then the step after
            page.keyboard.press(key)
        sync_api.expect(page.locator("#text")).to_contain_text("Step 2:")
        assert card.locator("li span").all_inner_texts() == list(dict.fromkeys(rows[1]["answers"]))
        page.get_by_role("radio", name="original").focus()
        page.keyboard.press("ArrowRight")
        sync_api.expect(card.locator("tr.chosen")).to_contain_text("cluster-based, ROUGE-L")
        page.get_by_label("Match").select_option("exact")
        sync_api.expect(card.locator("tr.chosen")).to_contain_text("cluster-based, exact")
        page.get_by_label("Procedure").select_option(index=1)
        sync_api.expect(page.locator("#text")).to_contain_text("Step 1:")
        other = next(row for row in rows if row["id"].split("||")[0] != rows[0]["id"].split("||")[0])
        assert sorted(card.locator("li span").all_inner_texts()) == sorted(set(other["answers"]))


def test_a_row_of_a_table_leads_to_its_run(report, browser):
    with read(browser, report) as page:
        assert page.locator("table.compared").count() >= 6
        page.locator("#table-table2 + .scroll").get_by_role("link", name="BART", exact=True).click()
        run = page.locator("#run-03_baselines-bart")
        sync_api.expect(run).to_have_attribute("open", "")
        sync_api.expect(run.locator("pre")).to_contain_text("lib.metrics outputs/laptop/03_baselines/bart/predictions")
        sync_api.expect(run.get_by_role("row", name="model.original_rouge_l")).to_be_visible()


@pytest.mark.parametrize("width", [390, 1200])
def test_the_report_fits_the_window(report, browser, width):
    with read(browser, report, width) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.locator("figure img").evaluate_all("images => images.every(image => image.naturalWidth > 0)")
