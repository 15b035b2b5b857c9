"""Claude Code, over the messages API: reads a file and edits it with its own tools."""

import json
import sys

from shouting import AFTER, BEFORE, DONE, TASK, assert_shouts
from suite import agents, call, check, environment, main, npm_version, rule, run_agent, scripted, workplace


def variables(home, url):
    return environment(
        home,
        ANTHROPIC_BASE_URL=url,
        ANTHROPIC_AUTH_TOKEN="any",
        ANTHROPIC_MODEL="scripted",
        ANTHROPIC_SMALL_FAST_MODEL="scripted",
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
        DISABLE_AUTOUPDATER="1",
    )


def rules(file):
    return (
        rule(DONE, has="<function=Edit>\n", think="It is done."),
        rule(
            call("Edit", file_path=file, old_string=BEFORE, new_string=AFTER),
            has=["<function=Read>\n", "<tool_response>"], think="I change the line.",
        ),
        rule("I read the file first.\n\n" + call("Read", file_path=file), has=TASK, think="I look."),
    )


@check
def it_reads_and_edits_a_file():
    for attribution in ({}, {"CLAUDE_CODE_ATTRIBUTION_HEADER": "0"}):
        with workplace() as (home, repository), scripted(*rules(str(repository / "greet.py"))) as url:
            command = [agents() / "@anthropic-ai/claude-code-linux-x64/claude", "-p", TASK]
            command += ["--output-format", "json", "--allowedTools", "Read,Edit"]
            printed = run_agent(command, repository, {**variables(home, url), **attribution})
            result = json.loads(next(line for line in printed.splitlines() if line.startswith("{")))
            assert result["result"] == DONE and not result["is_error"] and result["num_turns"] == 3, printed
            assert_shouts(repository)


if __name__ == "__main__":
    sys.exit(main("claude-code", npm_version("@anthropic-ai/claude-code")))
