"""Projects on the shared Kafka, as the engine's tests have them."""

from tests.engine.conftest import project

__all__ = ["project"]
