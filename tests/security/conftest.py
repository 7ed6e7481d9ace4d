"""As for the tests of the server."""

from tests.serve.conftest import bounded as bounded
