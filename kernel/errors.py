"""Every exception the kernel raises on purpose."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen


class KernelError(Exception):
    """Base of the kernel's own errors; anything else that escapes is a bug."""


class ActorStopped(KernelError):
    """The actor asked went away before it answered."""

    def __init__(self, actor: str) -> None:
        super().__init__(actor)
        self.actor = actor

    def __str__(self) -> str:
        return f"actor {self.actor!r} stopped before it answered"


class RestartBudgetSpent(KernelError):
    """A child crashed more often than its supervisor tolerates."""

    def __init__(self, child: str, crashes: int, within: float) -> None:
        super().__init__(child, crashes, within)
        self.child = child
        self.crashes = crashes
        self.within = within

    def __str__(self) -> str:
        return f"child {self.child!r} crashed {self.crashes} times within {self.within:g} s"


class UndeclaredKey(KernelError):
    """A plugin touched data that it did not declare."""

    def __init__(self, plugin: str, key: str, verb: str) -> None:
        super().__init__(plugin, key, verb)
        self.plugin = plugin
        self.key = key
        self.verb = verb

    def __str__(self) -> str:
        return f"plugin {self.plugin!r} tried to {self.verb} {self.key!r} without declaring it"


class AbsentKey(KernelError):
    """A declared key has no value in this request: its producer failed or had nothing to say."""

    def __init__(self, plugin: str, key: str) -> None:
        super().__init__(plugin, key)
        self.plugin = plugin
        self.key = key

    def __str__(self) -> str:
        return f"plugin {self.plugin!r} needs {self.key!r}, which has no value in this request"


class ViewClosed(KernelError):
    """A plugin kept its data view and used it outside the call that it was handed to."""

    def __init__(self, plugin: str) -> None:
        super().__init__(plugin)
        self.plugin = plugin

    def __str__(self) -> str:
        return f"plugin {self.plugin!r} used its data view after the call that it was handed to"


class RoleError(KernelError):
    """A plugin class does not fit the role that one of its methods is named after."""

    def __init__(self, plugin: str, problem: str) -> None:
        super().__init__(plugin, problem)
        self.plugin = plugin
        self.problem = problem

    def __str__(self) -> str:
        return f"plugin type {self.plugin!r}: {self.problem}"


class TypeTaken(KernelError):
    """Two plugin classes claim one type name."""

    def __init__(self, type_name: str, holder: str, claimant: str) -> None:
        super().__init__(type_name, holder, claimant)
        self.type_name = type_name
        self.holder = holder
        self.claimant = claimant

    def __str__(self) -> str:
        return (
            f"plugin type {self.type_name!r} of {self.claimant} is already taken by {self.holder}"
        )


@frozen
class Mistake:
    """One thing wrong with a configuration, and where."""

    message: str
    path: str = ""
    """Where in the document, such as ``plugins[2].parameters.threshold``."""
    line: int | None = None
    """Counted from 1."""
    hint: str = ""
    """What the author probably meant."""

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line is not None else ""
        path = f"{self.path}: " if self.path else ""
        return f"{where}{path}{self.message}" + (f" ({self.hint})" if self.hint else "")


class ConfigError(KernelError):
    """A configuration that cannot be used, with all mistakes found in it."""

    def __init__(self, source: str, mistakes: Sequence[Mistake]) -> None:
        super().__init__(source, tuple(mistakes))
        self.source = source
        self.mistakes = tuple(mistakes)

    def __str__(self) -> str:
        return "\n".join(f"{self.source}: {mistake}" for mistake in self.mistakes)


class Refusal(KernelError):
    """A request is turned down with a status that its client sees.

    Admitters raise it with the code that they mean; the kernel keeps it.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        reason: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(status, message)
        self.status = status
        self.message = message
        self.reason = reason
        """For ``x-llm-d-request-dropped-reason``; None leaves the header out."""
        self.retry_after = retry_after
        """Seconds for ``retry-after``; None leaves the header out."""

    def __str__(self) -> str:
        return f"{self.status}: {self.message}"
