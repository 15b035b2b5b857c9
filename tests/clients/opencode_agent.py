"""opencode, over chat completions: reads a file and edits it, beside its job for a title."""

import json
import sys

from shouting import AFTER, BEFORE, DONE, TASK, assert_shouts
from suite import agents, call, check, environment, main, npm_version, rule, run_agent, scripted, workplace


def config(url):
    model = {"name": "Lily", "limit": {"context": 200_000, "output": 8192}}
    options = {"baseURL": f"{url}/v1", "apiKey": "any"}
    provider = {"npm": "@ai-sdk/openai-compatible", "name": "Lily", "options": options, "models": {"scripted": model}}
    return json.dumps({"autoupdate": False, "share": "disabled", "provider": {"lily": provider}})


def rules(file):
    return (
        rule("A greeting that shouts", lacks="# Tools", think="A title."),
        rule(DONE, has="<function=edit>\n", think="It is done."),
        rule(
            call("edit", filePath=file, oldString=BEFORE, newString=AFTER),
            has=["<function=read>\n", "<tool_response>"], think="I change the line.",
        ),
        rule("I read the file first.\n\n" + call("read", filePath=file), has=TASK, think="I look."),
    )


@check
def it_reads_and_edits_a_file():
    with workplace() as (home, repository), scripted(*rules(str(repository / "greet.py"))) as url:
        folder = home / ".config" / "opencode"
        folder.mkdir(parents=True)
        (folder / "opencode.json").write_text(config(url), encoding="utf-8")
        quiet = {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}
        command = [agents() / "opencode-linux-x64/bin/opencode", "run", "-m", "lily/scripted", TASK]
        printed = run_agent(command, repository, environment(home, **quiet))
        assert DONE in printed, printed
        assert_shouts(repository)


if __name__ == "__main__":
    sys.exit(main("opencode", npm_version("opencode-ai")))
