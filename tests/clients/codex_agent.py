"""Codex CLI, over the responses API: reads a file with its shell tool, then changes it."""

import sys

from shouting import AFTER, BEFORE, DONE, TASK, assert_shouts
from suite import agents, call, check, environment, main, npm_version, rule, run_agent, scripted, workplace

CONFIG = """model = "scripted"
model_provider = "lily"
model_context_window = 200000
check_for_update_on_startup = false

[analytics]
enabled = false

[model_providers.lily]
name = "Lily"
base_url = "{url}/v1"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
"""
CHANGE = f"sed -i 's/{BEFORE}/{AFTER}/' greet.py"
RULES = (
    rule(DONE, has=[f"<parameter=cmd>\n{CHANGE}\n"], think="It is done."),
    rule(call("exec_command", cmd=CHANGE), has=["<tool_response>", BEFORE], think="I change the line."),
    rule("I read the file first.\n\n" + call("exec_command", cmd="cat greet.py"), has=TASK, think="I look."),
)


@check
def it_reads_and_edits_a_file():
    with workplace() as (home, repository), scripted(*RULES) as url:
        (home / ".codex").mkdir()
        (home / ".codex" / "config.toml").write_text(CONFIG.format(url=url), encoding="utf-8")
        command = ["node", agents() / "@openai/codex/bin/codex.js", "exec", "--skip-git-repo-check"]
        # Its own sandbox wants rights that containers do not give.
        command += ["--dangerously-bypass-approvals-and-sandbox", TASK]
        printed = run_agent(command, repository, environment(home))
        assert DONE in printed, printed
        assert_shouts(repository)


if __name__ == "__main__":
    sys.exit(main("codex", npm_version("@openai/codex")))
