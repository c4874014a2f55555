"use strict";
// Keeps the page up to date: asks for it again, and puts what is new in place, so that nothing that is
// being read, selected or unfolded is disturbed. Without it the page is the same, as of its loading.
(() => {
  const EVERY = 2000;
  const root = document.documentElement;
  let paused = false;
  let failing = false;
  let busy = false;

  const button = document.createElement("button");
  button.type = "button";
  button.id = "live";

  function show() {
    const state = paused ? "paused" : failing ? "lost" : "live";
    if (button.dataset.state !== state) {
      button.dataset.state = state;
      button.textContent = { paused: "Go on", lost: "No answer", live: "Live" }[state];
      button.title = paused ? "Keep the page up to date" : "Stop keeping the page up to date";
      root.classList.toggle("stale", state !== "live");
    }
    const place = document.getElementById("asof");
    if (place && button.parentNode !== place) place.append(button);
  }

  function patch(old, fresh) {
    if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) {
      old.replaceWith(fresh);
      return;
    }
    if (old.nodeType === Node.TEXT_NODE) {
      if (old.data !== fresh.data) old.data = fresh.data;
      return;
    }
    for (const { name } of [...old.attributes]) {
      if (name !== "open" && !fresh.hasAttribute(name)) old.removeAttribute(name);
    }
    for (const { name, value } of fresh.attributes) {
      if (name !== "open" && old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    const olds = [...old.childNodes].filter((node) => node !== button);
    const news = [...fresh.childNodes];
    news.forEach((node, at) => (at < olds.length ? patch(olds[at], node) : old.append(node)));
    olds.slice(news.length).forEach((node) => node.remove());
  }

  async function refresh() {
    if (paused || busy || document.hidden) return;
    busy = true;
    try {
      const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(10000) });
      if (!answer.ok) throw new Error(String(answer.status));
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (fresh.documentElement.dataset.version !== root.dataset.version) {
        location.reload();
        return;
      }
      failing = false;
      if (!paused) {
        patch(document.getElementById("page"), fresh.getElementById("page"));
        document.title = fresh.title;
      }
    } catch {
      failing = true;
    } finally {
      busy = false;
      show();
    }
  }

  button.addEventListener("click", () => {
    paused = !paused;
    show();
    refresh();
  });
  document.addEventListener("visibilitychange", refresh);
  setInterval(refresh, EVERY);
  show();
})();
