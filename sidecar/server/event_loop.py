"""The event loop of the sidecar: uvloop where it is installed (`offramp-sidecar[uvloop]`), otherwise asyncio's own.

With OFFRAMP_PURE=1 in the environment it is asyncio's own in any case, which tells a fault of uvloop from one of ours.
"""

import asyncio
import os
from collections.abc import Callable
from importlib import metadata

#: for people
NAME = "asyncio"
new_event_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop

if os.environ.get("OFFRAMP_PURE", "0") == "0":
    try:
        import uvloop
    except ImportError:
        pass
    else:
        NAME = f"uvloop {metadata.version('uvloop')}"
        new_event_loop = uvloop.new_event_loop
