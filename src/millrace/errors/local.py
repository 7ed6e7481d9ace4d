"""Local servers."""

from __future__ import annotations

from millrace.errors.base import ServerError, UserError


class ServerUnknown(UserError):
    code = "MR-SERVER-UNKNOWN"
    text = "there is no local server named {name!r}{hint}"
    fix = "choose from {known}"


class ServerDown(ServerError):
    code = "MR-SERVER-DOWN"
    text = "{server} is not running"
    fix = "start it with `millrace up {server}`"


class ServerFailed(ServerError):
    code = "MR-SERVER-FAILED"
    text = "{server} ended while it was starting; it last said: {reason}"
    fix = "see {log}"


class ServerNotReady(ServerError):
    code = "MR-SERVER-NOT-READY"
    text = "{server} did not answer within {limit_s} s ({reason})"
    fix = "see {log}; on a slow machine run the same command again, it goes on where it was"


class ServerForeign(ServerError):
    code = "MR-SERVER-FOREIGN"
    text = "{server} of this project belongs to user {owner} (process {pid})"
    fix = "end it as that user"


class PortLost(ServerError):
    code = "MR-PORT-LOST"
    text = "the server that answers on port {port} is not the {server} of this project"
    fix = "run the same command again: another port will be chosen"


class ServersBusy(ServerError):
    code = "MR-SERVERS-BUSY"
    text = "another command has been changing the servers of {folder} for more than {limit_s} s"
    fix = "wait for it, or end it"


class ServerNotInstalled(ServerError):
    code = "MR-SERVER-NOT-INSTALLED"
    text = "{server} is not on this machine ({looked} was not found)"
    fix = "install it: `{install}`"


class BrokersFixed(UserError):
    code = "MR-BROKERS-FIXED"
    text = "the Kafka of this project was made with {found} broker(s), and {wanted} were asked for"
    fix = "leave --brokers out, or delete its data with `millrace reset kafka --yes` first"


class NeedsOrdinaryUser(ServerError):
    code = "MR-NEEDS-ORDINARY-USER"
    text = "{server} refuses to run as root, and the program `setpriv`, which would run it as nobody, is not installed"
    fix = "run Millrace as an ordinary user, or install util-linux"


class LogAbsent(UserError):
    code = "MR-LOG-ABSENT"
    text = "{server} has no log yet ({log}): it was never started in this project"
    fix = "start it with `millrace up {server}`"


class ResetUnsure(UserError):
    code = "MR-RESET-UNSURE"
    text = "reset deletes the data of {what}, and cannot be undone"
    fix = "add --yes if you mean it"


class PlatformUnsupported(ServerError):
    code = "MR-PLATFORM-UNSUPPORTED"
    text = "there is no build of {server} for {platform}"
    fix = "install it yourself and name it under [databases] in millrace.toml"


class ConnectNeedsOpenKafka(UserError):
    code = "MR-CONNECT-NEEDS-OPEN-KAFKA"
    text = "a local Connect cannot use your Kafka, because [kafka.options] asks for security that it would not be given"
    fix = "name your own Connect with [connect] url, or start other servers: `millrace up postgres`"


class FolderUnfit(UserError):
    code = "MR-FOLDER-UNFIT"
    text = "{server} cannot keep its data in {folder}, because it {reason}"
    fix = "rename the folder, or work in another one"


class StateFolderUnusable(ServerError):
    code = "MR-STATE-FOLDER-UNUSABLE"
    text = "{folder}, where Millrace keeps data and logs, cannot be written ({reason})"
    fix = "free some room, or see to it that it is a folder that you may write to"
