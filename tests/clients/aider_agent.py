"""aider, over chat completions: an edit in its text format, committed with a written message."""

import importlib.metadata
import pathlib
import subprocess
import sys

from shouting import AFTER, BEFORE, DONE, TASK, assert_shouts
from suite import check, environment, main, rule, run_agent, scripted, workplace

EDIT = f"""{DONE}

greet.py
```python
<<<<<<< SEARCH
    {BEFORE}
=======
    {AFTER}
>>>>>>> REPLACE
```
"""
RULES = (
    rule("feat: Shout the greeting", has="commit message", lacks="SEARCH/REPLACE", think="A message."),
    rule(EDIT, has=[TASK, "SEARCH/REPLACE"], think="One line changes."),
)


@check
def it_edits_a_file_and_commits():
    with workplace() as (home, repository), scripted(*RULES) as url:
        variables = environment(
            home, OPENAI_API_BASE=f"{url}/v1", OPENAI_API_KEY="any", LITELLM_LOCAL_MODEL_COST_MAP="True",
            GIT_AUTHOR_NAME="Tester", GIT_AUTHOR_EMAIL="tester@example.org",
            GIT_COMMITTER_NAME="Tester", GIT_COMMITTER_EMAIL="tester@example.org",
        )
        command = [pathlib.Path(sys.executable).parent / "aider", "--model", "openai/scripted", "--edit-format", "diff"]
        command += ["--yes-always", "--no-check-update", "--analytics-disable", "--no-show-model-warnings"]
        command += ["--no-show-release-notes", "--no-gitignore", "--message", TASK, "greet.py"]
        printed = run_agent(command, repository, variables)
        assert_shouts(repository)
        log = subprocess.run(["git", "log", "-1", "--format=%s"], cwd=repository, capture_output=True, text=True)
        assert log.stdout.strip() == "feat: Shout the greeting", log.stdout + printed


if __name__ == "__main__":
    sys.exit(main("aider", importlib.metadata.version("aider-chat")))
