"""Views: SQL in PostgreSQL's dialect, planned into a chain of signed rows; the view store, the changelog and its marks.
Definitions and plans are data; only `run` and `columns` touch a session. How a chain runs is the engine's.

`planned` is the way in: SQL and the tables it may read, and out comes a plan, or a sentence that says why not.
"""

from millrace.views import types
from millrace.views.definition import Relation, planned, read_tables
from millrace.views.steps import Plan
from millrace.views.types import Type, named

__all__ = ["Plan", "Relation", "Type", "named", "planned", "read_tables", "types"]
