"""The web console: the graph of an app, its flows, topics, views and captures, the lake, and live pages of the demos. A
process of its own that reads what runs write beside their checkpoints and asks the servers; it starts nothing, and what
it keeps ends with it.

What is found out and what is drawn stand apart: a `page_…` is NiceGUI alone, everything else can be tested without a
browser.
"""

from __future__ import annotations

from millrace.console.server import serve

__all__ = ["serve"]
