"""Projects on the shared Kafka, as the engine's tests have them."""

from tests.engine.conftest import project, whole_epochs

__all__ = ["project", "whole_epochs"]
