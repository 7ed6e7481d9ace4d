"""What a user defines: an app, its topics and streams, and the graph they form.

Only definitions belong here: frozen data that remembers the line that made it. Nothing here starts anything or needs
Spark; `engine` turns a graph into running queries.
"""

from __future__ import annotations

from millrace.flow import late
from millrace.flow.app import App
from millrace.flow.deliveries import Delivery
from millrace.flow.graph import Edge, Graph, Graphed
from millrace.flow.lakes import LakeInput
from millrace.flow.loading import load_app
from millrace.flow.nodes import Input, Node, Readable, Stream, Topic, Traffic
from millrace.flow.tables import Changes, Database, Table
from millrace.flow.time import Adaptive, Fixed, Lateness, Marked, adaptive, marked, monotonic
from millrace.flow.views import View

__all__ = [
    "Adaptive",
    "App",
    "Changes",
    "Database",
    "Delivery",
    "Edge",
    "Fixed",
    "Graph",
    "Graphed",
    "Input",
    "LakeInput",
    "Lateness",
    "Marked",
    "Node",
    "Readable",
    "Stream",
    "Table",
    "Topic",
    "Traffic",
    "View",
    "adaptive",
    "late",
    "load_app",
    "marked",
    "monotonic",
]
