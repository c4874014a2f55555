"""The status page: what a sidecar shows to people who open its HTTP port in a browser.

One read-only page of plain HTML, rendered from what the sidecar knows anyway. A small script, where the browser runs
scripts, asks for the page again and updates it in place.

| module | what it is for |
|---|---|
| `page` | gathers what is shown, and responds to the HTTP server |
| `facts` | everything that one page is rendered from |
| `advice` | what an operator should do: facts to sentences |
| `document` | the page as a whole: head, header, troubles, footer, content security policy |
| `subscription_card` | the card of one subscription, with its charts and tables |
| `event_list` | the latest log events, kept in a ring of fixed size, and their list |
| `dead_letter_feed` | the newest dead letters, read from the broker at intervals |
| `charts` | a few minutes of rates, kept in a ring of fixed size, and their charts in SVG |
| `markup` | HTML that escapes whatever it is given |
| `format` | numbers and times for people |
| `style.css` `script.js` | the looks, and the update in place |
"""

from sidecar.server.status_page.page import StatusPage

__all__ = ["StatusPage"]
