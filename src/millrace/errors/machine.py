"""This machine: Java, the disk, downloads, and what nobody foresaw."""

from __future__ import annotations

from millrace.errors.base import ServerError


class JavaMissing(ServerError):
    code = "MR-JAVA-MISSING"
    text = "Java was not found ({looked}); Kafka and Spark need Java 17 or later"
    fix = "install it, for example `apt-get install openjdk-17-jre-headless`, or set JAVA_HOME"


class JavaTooOld(ServerError):
    code = "MR-JAVA-TOO-OLD"
    text = "{java} is Java {found}; Kafka and Spark need Java 17 or later"
    fix = "install a newer one, for example `apt-get install openjdk-17-jre-headless`, or point JAVA_HOME at it"


class DiskFull(ServerError):
    code = "MR-DISK-FULL"
    text = "no room left in {folder}: {needed} needed, {free} free"
    fix = "free some room there, or set MILLRACE_CACHE to a folder on a larger disk"


class Unexpected(ServerError):
    code = "MR-UNEXPECTED"
    text = "Millrace met something it did not foresee ({kind}: {reason})"
    fix = "the details are in {log}; please report them"


class CacheUnusable(ServerError):
    code = "MR-CACHE-UNUSABLE"
    text = "the cache folder {folder} cannot be used ({reason})"
    fix = "set MILLRACE_CACHE to a folder that you may write to"


class IvyMissing(ServerError):
    code = "MR-IVY-MISSING"
    text = "the Apache Ivy that PySpark brings along was not found ({looked}); jars are fetched by it"
    fix = "install Millrace again with all it needs: `pip install --force-reinstall millrace`"


class JarsUnreachable(ServerError):
    code = "MR-JARS-UNREACHABLE"
    text = "{count} of the jars of {group} could not be fetched: no connection to the registry ({reason})"
    fix = (
        "check the network and run the command again (behind a proxy with "
        "JAVA_TOOL_OPTIONS='-Dhttps.proxyHost=HOST -Dhttps.proxyPort=PORT'); Ivy's own words are in {log}"
    )


class JarUnknown(ServerError):
    code = "MR-JAR-UNKNOWN"
    text = "the registry does not have {jar}"
    fix = "if a mirror stands between here and it, let it pass that jar; Ivy's own words are in {log}"


class JarRefused(ServerError):
    code = "MR-JAR-REFUSED"
    text = (
        "{jar} is not the file that jars.lock names: its {property} is {found} and should be {expected}; it was deleted"
    )
    fix = "run the command again; if it stays so, something between here and the registry changes downloads"


class JarsSlow(ServerError):
    code = "MR-JARS-SLOW"
    text = "{what} took more than {minutes} minutes and was given up"
    fix = "run the command again: jars that have arrived are kept"


class JarsFailed(ServerError):
    code = "MR-JARS-FAILED"
    text = "{count} of the jars of {group} could not be fetched ({reason})"
    fix = "run the command again; Ivy's own words are in {log}"


class CompilerMissing(ServerError):
    code = "MR-COMPILER-MISSING"
    text = "Millrace's {unit} has to be compiled from its source, and there is no `javac` beside {java} nor on PATH"
    fix = (
        "install a JDK of Java 17 or later, for example `apt-get install openjdk-17-jdk-headless`; "
        "installed from its wheel, Millrace needs no compiler"
    )


class CompilerFailed(ServerError):
    code = "MR-COMPILER-FAILED"
    text = "Millrace's {unit} could not be compiled by {compiler} ({reason})"
    fix = "point JAVA_HOME at a JDK of Java 17 or later; if it is one, please report this"
