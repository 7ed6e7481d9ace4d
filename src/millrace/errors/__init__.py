"""Every error that Millrace raises on purpose, one file a room. Import them from here.

    MillraceError
    ├── UserError       exit code 1: the command, the code or the configuration has to change
    └── ServerError     exit code 2: a server, the network or the machine has to change

One class is one cause. Its text is a template whose fields are the facts given when it is raised:
`raise TopicUnknown(topic="payments", hint="")`. A test holds every raise to the fields of its class.
"""

from millrace.errors.base import MillraceError as MillraceError
from millrace.errors.base import ServerError as ServerError
from millrace.errors.base import UserError as UserError
from millrace.errors.base import Where as Where
from millrace.errors.base import caller as caller
from millrace.errors.base import nearest as nearest
from millrace.errors.base import shown as shown
from millrace.errors.capture import *  # noqa: F403
from millrace.errors.cli import *  # noqa: F403
from millrace.errors.config import *  # noqa: F403
from millrace.errors.console import *  # noqa: F403
from millrace.errors.engine import *  # noqa: F403
from millrace.errors.events import *  # noqa: F403
from millrace.errors.flow import *  # noqa: F403
from millrace.errors.kernel import *  # noqa: F403
from millrace.errors.lake import *  # noqa: F403
from millrace.errors.local import *  # noqa: F403
from millrace.errors.log import *  # noqa: F403
from millrace.errors.machine import *  # noqa: F403
from millrace.errors.queues import *  # noqa: F403
from millrace.errors.serve import *  # noqa: F403
from millrace.errors.sinks import *  # noqa: F403
from millrace.errors.testing import *  # noqa: F403
from millrace.errors.views import *  # noqa: F403
