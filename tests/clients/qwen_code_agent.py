"""Qwen Code, over chat completions: reads a file and edits it with its own tools."""

import sys

from shouting import AFTER, BEFORE, DONE, TASK, assert_shouts
from suite import agents, call, check, environment, main, npm_version, rule, run_agent, scripted, workplace


def rules(file):
    return (
        rule(DONE, has=f"<function=edit>\n<parameter=file_path>\n{file}", think="It is done."),
        rule(
            call("edit", file_path=file, old_string=BEFORE, new_string=AFTER),
            has=f"<function=read_file>\n<parameter=file_path>\n{file}", think="I change the line.",
        ),
        rule("I read the file first.\n\n" + call("read_file", file_path=file), has=TASK, think="I look."),
    )


@check
def it_reads_and_edits_a_file():
    with workplace() as (home, repository), scripted(*rules(str(repository / "greet.py"))) as url:
        variables = environment(
            home, OPENAI_BASE_URL=f"{url}/v1", OPENAI_API_KEY="any", OPENAI_MODEL="scripted",
            QWEN_CODE_SUPPRESS_YOLO_WARNING="1",
        )
        command = ["node", agents() / "@qwen-code/qwen-code/cli-entry.js", "-y", TASK]
        printed = run_agent(command, repository, variables)
        assert DONE in printed, printed
        assert_shouts(repository)


if __name__ == "__main__":
    sys.exit(main("qwen-code", npm_version("@qwen-code/qwen-code")))
