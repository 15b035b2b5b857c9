#!/usr/bin/env python3
"""Runs unmodified releases of real clients against the server, and checks that it ends cleanly.

    tests/clients/run.py [--only NAME,…] [--agents] [--binary target/release/lily]
                         [--scripted target/debug/examples/scripted] [--url URL] [arguments of lily serve]

Clients are installed once, at the versions of requirements/, node/ and agents/, below target/. Then
everything runs without a network: in a namespace that has loopback only, or where the system allows
none, with proxies that lead nowhere. Each suite ends with `NAME VERSION ok (n checks, s)`. With
--url a server that is running already is tested, in this network, and none is started or stopped.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import environments
import serving
from environments import HERE, ROOT, fail

SUITE_LIMIT_S = 900
# A port at which nothing listens.
NOWHERE = "http://127.0.0.1:9"

# Name, environment, file.
SDKS = [
    ("openai-python", "sdk", "openai_python.py"),
    ("openai-python-older", "older", "openai_python.py"),
    ("openai-forms", "sdk", "openai_forms_python.py"),
    ("openai-node", "node", "openai_node.mjs"),
    ("anthropic", "sdk", "anthropic_python.py"),
    ("langchain", "sdk", "langchain_python.py"),
    ("litellm", "older", "litellm_python.py"),
    ("llm", "sdk", "llm_cli.py"),
    ("instructor", "older", "instructor_python.py"),
    ("pydantic-ai", "sdk", "pydantic_ai_python.py"),
    ("smolagents", "sdk", "smolagents_python.py"),
    ("ollama", "sdk", "ollama_python.py"),
    ("openai-agents", "sdk", "openai_agents_python.py"),
]
AGENTS = [
    ("codex", "agents", "codex_agent.py"),
    ("claude-code", "agents", "claude_code_agent.py"),
    ("opencode", "agents", "opencode_agent.py"),
    ("qwen-code", "agents", "qwen_code_agent.py"),
    ("aider", "aider", "aider_agent.py"),
]


def chosen(arguments):
    if not arguments.only:
        return SDKS + (AGENTS if arguments.agents else [])
    names = arguments.only.split(",")
    known = {name: suite for suite in SDKS + AGENTS for name in [suite[0]]}
    for name in names:
        if name not in known:
            fail(f"there is no suite `{name}`", f"choose from {', '.join(known)}")
    return [known[name] for name in names]


def install(suites):
    needed = {environment for _, environment, _ in suites}
    started = time.monotonic()
    # Node comes from the first one.
    environments.venv("sdk")
    for name in ("older", "aider"):
        if name in needed:
            environments.venv(name)
    for name in ("node", "agents"):
        if name in needed:
            environments.npm(name)
    print(f"clients: installed in {time.monotonic() - started:.0f} s", flush=True)


def isolated():
    """The start of a command that has no network but loopback; empty where that cannot be had."""
    lone = ["unshare", "--map-root-user", "--net", "--", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    try:
        done = subprocess.run([*lone, "true"], capture_output=True, check=False)
    except OSError:
        return []
    return lone if done.returncode == 0 else []


def suite_command(environment, file, url, scripted):
    if environment == "node":
        return [environments.node(), HERE / file, url]
    python = sys.executable if environment == "agents" else environments.python(environment)
    return [python, HERE / file, url, scripted]


def run_suite(suite, url, scripted, variables):
    name, environment, file = suite
    command = [str(word) for word in suite_command(environment, file, url, scripted)]
    started = time.monotonic()
    try:
        done = subprocess.run(command, env=variables, timeout=SUITE_LIMIT_S, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
    except subprocess.TimeoutExpired as error:
        print((error.output or b"").decode(errors="replace")[-8000:])
        print(f"{name} FAILED: more than {SUITE_LIMIT_S} s", flush=True)
        return False
    if done.returncode == 0:
        print(f"{done.stdout.strip().splitlines()[-1]} [{time.monotonic() - started:.1f} s with its start]", flush=True)
        return True
    print(done.stdout[-20_000:])
    print(f"{name} FAILED", flush=True)
    return False


def run_suites(suites, arguments):
    server, url = None, arguments.url
    if url is None:
        server, url = serving.start(arguments.binary.resolve(), arguments.arguments)
    failed = []
    try:
        with tempfile.TemporaryDirectory() as home:
            proxies = {key: NOWHERE for key in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")}
            local = {key: "127.0.0.1,localhost" for key in ("no_proxy", "NO_PROXY")}
            folders = {
                "HOME": home,
                "OPENAI_NODE_MODULES": str(environments.TARGET / "clients-node"),
                "CLIENTS_NODE": str(environments.node()),
                "CLIENTS_AGENTS": str(environments.TARGET / "clients-agents"),
            }
            variables = {**os.environ, **proxies, **local, **folders}
            for suite in suites:
                if not run_suite(suite, url, arguments.scripted.resolve(), variables):
                    failed.append(suite[0])
    finally:
        clean = serving.stop(server) if server else True
    if failed or not clean:
        print(f"clients: {len(failed)} of {len(suites)} suites failed: {', '.join(failed) or 'none'}")
        return 1
    print(f"clients: all {len(suites)} suites passed" + (", clean exit" if server else ""))
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="run these suites, separated by commas")
    parser.add_argument("--agents", action="store_true", help="run the coding agents as well")
    parser.add_argument("--binary", type=pathlib.Path, default=ROOT / "target" / "release" / "lily")
    scripted = ROOT / "target" / "debug" / "examples" / "scripted"
    parser.add_argument("--scripted", type=pathlib.Path, default=scripted)
    parser.add_argument("--url", help="test the server that runs here")
    parser.add_argument("--installed", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("arguments", nargs="*", help="further arguments of `lily serve`")
    arguments = parser.parse_args()
    suites = chosen(arguments)
    if arguments.url is None and not arguments.binary.exists():
        fail(f"{arguments.binary} is not there", "cargo build --release")
    if not arguments.scripted.exists():
        fail(f"{arguments.scripted} is not there", "cargo build --package lily-server --example scripted")
    if not arguments.installed:
        install(suites)
        lone = isolated() if arguments.url is None else []
        if lone:
            return subprocess.run([*lone, sys.executable, __file__, "--installed", *sys.argv[1:]], check=False).returncode
        print("clients: no namespace without a network here; proxies that lead nowhere instead", flush=True)
    return run_suites(suites, arguments)


if __name__ == "__main__":
    sys.exit(main())
