"""The `llm` command with Lily among its extra models."""

import importlib.metadata
import os
import pathlib
import subprocess
import sys
import tempfile

from suite import URL, check, main, rule, scripted

MODELS = """- model_id: lily
  model_name: demo
  api_base: {url}/v1
  supports_schema: true
"""
RULES = (rule('{"name":"Rex","age":3}', has="a dog"), rule("Hello from the terminal."))


def llm(url, *words, stdin=None):
    with tempfile.TemporaryDirectory() as home:
        (pathlib.Path(home) / "extra-openai-models.yaml").write_text(MODELS.format(url=url), encoding="utf-8")
        command = [str(pathlib.Path(sys.executable).parent / "llm"), *words]
        variables = {**os.environ, "LLM_USER_PATH": home, "HOME": home}
        streams = {"input": stdin, "capture_output": True, "text": True} if stdin else {
            "stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
        done = subprocess.run(command, env=variables, timeout=60, check=False, **streams)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@check
def it_lists_the_model():
    assert "lily" in llm(URL, "models")


@check
def a_prompt_of_the_demo_model():
    assert llm(URL, "-m", "lily", "-o", "temperature", "0", "-o", "max_tokens", "200", "What is Lily?").strip()


@check
def streamed_whole_and_piped():
    with scripted(*RULES) as url:
        assert llm(url, "-m", "lily", "Hello").strip() == "Hello from the terminal."
        assert llm(url, "-m", "lily", "--no-stream", "Hello").strip() == "Hello from the terminal."
        assert llm(url, "-m", "lily", "-s", "Be brief", stdin="Some text").strip() == "Hello from the terminal."


@check
def a_schema():
    with scripted(*RULES) as url:
        answer = llm(url, "-m", "lily", "--schema", "name, age int", "Invent a dog")
    assert answer.split() and '"Rex"' in answer, answer


if __name__ == "__main__":
    sys.exit(main("llm", importlib.metadata.version("llm")))
