"""Projects on the shared Kafka, as the engine's tests have them."""

from tests.engine.conftest import project, spark

__all__ = ["project", "spark"]
