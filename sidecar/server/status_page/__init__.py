"""The status page: what a sidecar shows to people who open its HTTP port in a browser.

One page of plain HTML, made anew for each look from what the sidecar knows anyway; a small script, if the browser runs
one, asks for it again and puts the news in place. Read-only.

| room | what it owns |
|---|---|
| `page` | gathering what is shown, and answering with it |
| `history` | a few minutes of rates, in a ring of fixed size |
| `events` | what was logged lately, in a ring of fixed size |
| `letters` | a bounded look at the newest dead letters, seldom |
| `facts` | all that one picture is made of |
| `document` `overview` `cards` `lanes` `workers` `aside` `feed` | the parts of the page, each facts to markup |
| `advice` | what an operator should do |
| `charts` `markup` `words` | SVG; HTML that escapes whatever it is given; numbers and times for people |
| `style.css` `script.js` | its looks, and how it stays up to date |
"""

from sidecar.server.status_page.page import StatusPage

__all__ = ["StatusPage"]
