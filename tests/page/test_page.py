"""The status page of a real sidecar in a real browser."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import offramp
from offramp.v1 import admin_pb2, admin_pb2_grpc
from tests.e2e.harness import WAIT_TIMEOUT, Sidecar
from tests.page.browser import Browser
from tests.servers.process import free_ports
from tests.unit.server.status_page.test_document import HOSTILE

WIDTHS = (320, 390, 720, 970, 1280)
#: least contrast of text with its ground (WCAG 2, level AA)
CONTRAST = 4.5

#: the contrast of each text with what is behind it
_CONTRASTS = """
const parse = (text) => text.match(/[\\d.]+/g).map(Number);
const linear = (c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
const ground = (node) => {
  for (; node; node = node.parentElement) {
    const color = parse(getComputedStyle(node).backgroundColor);
    if (color.length === 3 || color[3] > 0) return color;
  }
  return [255, 255, 255];
};
const found = [];
const walker = document.createTreeWalker(document.getElementById("page"), NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const text = walker.currentNode.data.trim(), parent = walker.currentNode.parentElement;
  if (!text || !parent.checkVisibility()) continue;
  const [a, b] = [light(parse(getComputedStyle(parent).color)), light(ground(parent))].sort((x, y) => y - x);
  found.push([text, (a + 0.05) / (b + 0.05)]);
}
return found;
"""

#: what is cut off at the right edge
_BEYOND = """
return [...document.querySelectorAll("#page *")]
  .filter((node) => node.checkVisibility() && !node.closest("thead, caption"))
  .filter((node) => node.getBoundingClientRect().right > innerWidth + 1)
  .map((node) => node.outerHTML);
"""


def open_page(
    browser: Browser, sidecar: Sidecar, *, dark: bool = False, width: int = 1280, scripts: bool = True
) -> None:
    """Open the page again, with these properties of the browser."""
    # The page of a sidecar that is gone by now has complained of that.
    browser.open("about:blank")
    browser.console()
    browser.emulate(dark=dark, width=width)
    browser.allow_scripts(scripts)
    browser.open(f"http://{sidecar.http}/")


@contextmanager
def busy(sidecar: Sidecar) -> Iterator[offramp.Batch]:
    """A worker that holds a batch."""
    sidecar.publish("orders", [b"%d" % n for n in range(30)], lane=0)
    with offramp.connect("orders", address=sidecar.target, name="tortoise") as consumer:
        batch = consumer.take(timeout=WAIT_TIMEOUT)
        assert batch is not None
        yield batch


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_can_be_read_in_light_and_dark(browser: Browser, sidecar: Sidecar, dark: bool, scripts: bool) -> None:
    with busy(sidecar):
        open_page(browser, sidecar, dark=dark, scripts=scripts)
        assert "All is well" in browser.text("h2")
        contrasts = browser.run(_CONTRASTS)
        assert len(contrasts) > 60
        assert [(text, round(contrast, 2)) for text, contrast in contrasts if contrast < CONTRAST] == []
        ground = browser.run("return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
        assert (max(ground) < 60) is dark
        assert browser.console() == []


def test_without_scripts_it_is_tables_with_everything(browser: Browser, sidecar: Sidecar) -> None:
    with busy(sidecar):
        open_page(browser, sidecar, scripts=False)
        headings = browser.run("return [...document.querySelectorAll('h1, h2, h3')].map((node) => node.innerText)")
        assert [words.split()[0] for words in headings] == [
            "Offramp", "All", "orders", "Lanes", "Workers", "Dead", "Parked", "Events"
        ]  # fmt: skip
        lanes = browser.run("return document.querySelector('.lanes table').innerText")
        assert "orders/" in lanes
        assert browser.text(".workers tbody th").startswith("tortoise")
        assert "lanes were assigned" in browser.text(".events")
        assert browser.run("return document.getElementById('live')") is None


@pytest.mark.parametrize("width", WIDTHS)
def test_it_never_scrolls_sideways(browser: Browser, tmp_path: Path, width: int) -> None:
    name = "a-topic-with-a-name-that-does-not-end-" * 3
    subscriptions = {"orders": {"topics": [name, "orders"]}}
    with Sidecar(tmp_path, subscriptions=subscriptions) as sidecar, busy(sidecar):
        for scripts in (False, True):
            open_page(browser, sidecar, width=width, scripts=scripts)
            assert browser.run("return [innerWidth, document.documentElement.scrollWidth]") == [width, width]
        assert browser.run(_BEYOND) == []


def test_it_stays_up_to_date_by_itself(browser: Browser, sidecar: Sidecar) -> None:
    open_page(browser, sidecar)
    assert "No worker is connected" in browser.text(".workers")
    browser.run("document.querySelector('main').mine = 'the same'")
    with busy(sidecar) as batch:
        browser.wait_for(lambda: "tortoise" in browser.text(".workers"), "the worker is shown")
        browser.wait_for(lambda: f"In flight\n{len(batch)}\n" in browser.text("dl"), "its records are shown")
        batch.ack()
        drawn = "return document.querySelector('.chart.good .area')?.getBoundingClientRect().height ?? 0"
        browser.wait_for(lambda: browser.run(drawn) > 20, "the chart has them")
    browser.wait_for(lambda: "No worker is connected" in browser.text(".workers"), "the worker is gone")
    assert browser.run("return document.querySelector('main').mine") == "the same"
    assert browser.console() == []


def test_what_is_unfolded_and_selected_stays_so_while_news_arrive(browser: Browser, sidecar: Sidecar) -> None:
    with sidecar.channel() as channel, offramp.connect("orders", address=sidecar.target) as consumer:
        sidecar.publish("orders", [b"1"])
        batch = consumer.take(timeout=WAIT_TIMEOUT)
        assert batch is not None
        assert batch.reject("no such account").result(WAIT_TIMEOUT)
        open_page(browser, sidecar)
        browser.wait_for(
            lambda: browser.run("return document.querySelector('details') !== null"), "dead letters are shown"
        )
        browser.run("document.querySelector('details').open = true")
        browser.run("getSelection().selectAllChildren(document.querySelector('h1'))")
        admin_pb2_grpc.AdminServiceStub(channel).Pause(
            admin_pb2.PauseRequest(subscription="orders", reason="lunch"), timeout=WAIT_TIMEOUT
        )
        browser.wait_for(lambda: "1 thing needs you" in browser.text(".alarm h2"), "the trouble is shown")
        assert "offramp resume orders" in browser.text(".alarm")
        assert browser.run("return document.title") == "(1) Offramp"
        assert browser.run("return document.querySelector('details').open") is True
        assert "no such account" in browser.text("details")
        assert "Offramp" in browser.run("return String(getSelection())")


def test_it_can_be_paused_and_goes_on(browser: Browser, sidecar: Sidecar) -> None:
    open_page(browser, sidecar)
    assert browser.text("#live") == "Live"
    browser.run("document.getElementById('live').click()")
    assert browser.text("#live") == "Go on"
    as_of = browser.text("#asof")
    with busy(sidecar):
        browser.wait_for(lambda: sidecar.status().in_flight_records > 0, "there is news")
        # Longer than it would take to ask again.
        browser.run("return new Promise((done) => setTimeout(done, 2500))")
        assert browser.text("#asof") == as_of
        browser.run("document.getElementById('live').click()")
        browser.wait_for(lambda: "tortoise" in browser.text(".workers"), "the news are shown")


def test_a_sidecar_that_does_not_answer_is_told_of_and_one_that_is_back_too(browser: Browser, sidecar: Sidecar) -> None:
    sidecar.settings["http"]["address"] = f"127.0.0.1:{free_ports(1)[0]}"
    sidecar.restart()
    open_page(browser, sidecar)
    sidecar.kill()
    browser.wait_for(lambda: browser.text("#live") == "No answer", "it says that there is no answer")
    assert "Nothing is wrong" in browser.text("h2")
    browser.console()
    sidecar.start()
    browser.wait_for(lambda: browser.text("#live") == "Live", "it is back")


def test_hostile_names_and_reasons_are_shown_as_they_are(browser: Browser, tmp_path: Path) -> None:
    """As names of workers and topics and as reasons of dead letters; none of it is executed."""
    topics = [HOSTILE[0], HOSTILE[2], HOSTILE[3]]
    with Sidecar(tmp_path, subscriptions={"orders": {"topics": ["orders", *topics]}}) as sidecar:
        sidecar.publish("orders", [b"%d" % n for n in range(len(HOSTILE))])
        for topic in topics:
            sidecar.publish(topic, [b"1"], lane=0)
        shown = [text for text in HOSTILE if text.isprintable() and len(text) < 100]
        for text in HOSTILE:
            with offramp.connect("orders", address=sidecar.target, name=text[:100]) as consumer:
                batch = consumer.take(timeout=WAIT_TIMEOUT)
                assert batch is not None
                batch[0].reject(text)
                batch.release()
        with offramp.connect("orders", address=sidecar.target, name=shown[0]):
            open_page(browser, sidecar)
            browser.wait_for(lambda: shown[0] in browser.text(".workers"), "the worker is shown")
            page = "return document.body.textContent"
            browser.wait_for(lambda: all(text in str(browser.run(page)) for text in shown), "all is shown")
            lanes = browser.run("return document.querySelector('.lanes').textContent")
            assert [topic for topic in topics if f"{topic}/0" not in lanes] == []
        assert browser.run("return document.querySelectorAll('img, iframe, object, embed, form, input').length") == 0
        assert browser.run("return document.querySelectorAll('script').length") == 1
        assert browser.console() == []


def test_the_policy_is_in_force(browser: Browser, sidecar: Sidecar) -> None:
    """Even if the markup let something in, the browser would stop it."""
    open_page(browser, sidecar)
    browser.run("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.broken = true\">')")
    browser.run(
        "const s = document.createElement('script'); s.textContent = 'window.broken = true'; document.body.append(s)"
    )
    browser.run("document.body.insertAdjacentHTML('beforeend', '<p id=styled style=\"color: red\">x</p>')")
    assert browser.run("return [window.broken ?? null, getComputedStyle(document.getElementById('styled')).color]") == [
        None,
        browser.run("return getComputedStyle(document.body).color"),
    ]
    assert any("Content Security Policy" in complaint for complaint in browser.console())
