"""Which prompts are slash commands."""

from __future__ import annotations

from typing import Any

import pytest

from ccb.remote.slash_commands.command_registry import CommandCall, CommandRegistry, Printed, SlashCommand


def command(name: str, source: str = "builtin") -> SlashCommand:
    async def run(call: CommandCall) -> Printed:
        return Printed(call.arguments)

    return SlashCommand(name, f"does {name}", run, "[x]", source)


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


@pytest.fixture
def registry() -> CommandRegistry:
    made = CommandRegistry()
    made.register(command("compact"))
    made.provide(lambda: [command("git:commit", "project"), command("compact", "project")])
    return made


@pytest.mark.parametrize(
    ("prompt", "name", "arguments"),
    [
        ("/compact", "compact", ""),
        ("  /compact keep the\nplan ", "compact", "keep the\nplan"),
        ("/git:commit -m 'x'", "git:commit", "-m 'x'"),
        ("/etc/hosts is wrong", None, ""),
        ("/unknown", None, ""),
        ("say /compact", None, ""),
        ("/compactor", None, ""),
    ],
)
def test_a_prompt_calls_a_command_by_its_first_word(
    registry: CommandRegistry, prompt: str, name: str | None, arguments: str
) -> None:
    found = registry.find([text(prompt)])
    assert (found[1].name, found[1].arguments) == (name, arguments) if found else name is None


def test_a_registered_name_wins_and_the_list_is_sorted(registry: CommandRegistry) -> None:
    assert [(each.name, each.source) for each in registry.commands] == [
        ("compact", "builtin"),
        ("git:commit", "project"),
    ]
    assert registry.commands[1].public()["description"] == "does git:commit (project)"
    with pytest.raises(ValueError, match="compact"):
        registry.register(command("compact"))


def test_images_go_with_the_call_and_providers_are_asked_again(registry: CommandRegistry) -> None:
    image = {"type": "image"}
    found = registry.find([text("/compact"), image])
    assert found is not None and found[1].attached == [image]
    registry.provide(lambda: [command("late", "skill")])
    assert registry.find([text("/late")]) is not None
