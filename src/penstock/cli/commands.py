"""The shapes of our commands: groups that load what they need, helps that show an example, hints for typing errors."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from penstock.model.text import suggest

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class CliCommand(click.Command):
    """A command whose help ends with examples."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **more: Any) -> None:
        super().__init__(*args, **{"context_settings": CONTEXT, **more})
        self.examples = tuple(examples)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _write_examples(self.examples, formatter)


class CommandGroup(click.Group):
    """A group of commands. `lazy` maps a name to where it is (`module:command`) and its line in the help.

    `default` is the command that is meant when only options, or nothing, follow the group's name.
    """

    def __init__(
        self,
        *args: Any,
        lazy: Mapping[str, tuple[str, str]],
        examples: Sequence[str] = (),
        default: str | None = None,
        **more: Any,
    ) -> None:
        super().__init__(*args, **{"context_settings": CONTEXT, **more})
        self.lazy = lazy
        self.default = default
        self.examples = tuple(examples)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.lazy)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self.lazy:
            return None
        module, _, attribute = self.lazy[name][0].partition(":")
        found: click.Command = getattr(importlib.import_module(module), attribute)
        return found

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if ctx.resilient_parsing:
            # A shell asks how the line may go on.
            return super().parse_args(ctx, args)
        if not args and self.default is None:
            click.echo(ctx.get_help())
            ctx.exit()
        asks_help = any(word in ctx.help_option_names for word in args)
        if self.default and not asks_help and (not args or args[0].startswith("-")):
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args and args[0] not in known and not args[0].startswith("-") and not ctx.resilient_parsing:
            raise click.UsageError(_no_such_command(args[0], known), ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """As click does, but without loading a single command."""
        commands = [
            CompletionItem(name, help=line) for name, (_, line) in self.lazy.items() if name.startswith(incomplete)
        ]
        return commands + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """As click does, but without loading a single command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self.lazy.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _write_examples(self.examples, formatter)


def command(name: str, *examples: str) -> Callable[[Callable[..., Any]], CliCommand]:
    """Make a function the command of this name; the examples end its help."""

    def decorate(function: Callable[..., Any]) -> CliCommand:
        return click.command(name, cls=CliCommand, examples=examples)(function)

    return decorate


def _write_examples(examples: Sequence[str], formatter: click.HelpFormatter) -> None:
    if examples:
        with formatter.section("Example" if len(examples) == 1 else "Examples"):
            formatter.write("".join(f"{'':>{formatter.current_indent}}{line}\n" for line in examples))


def _no_such_command(name: str, known: Sequence[str]) -> str:
    return f"no such command: {name}; {suggest(name, known)}"
