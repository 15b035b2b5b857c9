#!/usr/bin/env python3
"""Sends what schemathesis makes of `/openapi.json` to `lily serve` and checks that nothing breaks: no 5xx,
and every answer as the document says.

    tests/api/run.py [--binary target/release/lily] [--max-examples 15]

schemathesis is installed once below target/api-venv. The seed is fixed, so that a failure can be repeated.
"""

import argparse
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
VENV = ROOT / "target" / "api-venv"
PACKAGE = "schemathesis==4.32.5"
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
LIMIT_S = 600


def fail(problem, remedy):
    sys.exit(f"api: {problem}\n  remedy: {remedy}")


def install():
    program = VENV / "bin" / "schemathesis"
    if program.exists():
        return program
    try:
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
        pip = [VENV / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, PACKAGE], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        fail(f"schemathesis could not be installed: {error}", "check the network and python3-venv, then run this again")
    return program


def announced(server):
    """The object in which the server says where it is; it may have several lines."""
    text = ""
    for line in server.stdout:
        text += line
        try:
            return json.loads(text)
        except ValueError:
            continue
    fail(f"the server ended before it said where it is: {text}", "run the command by hand")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", default=ROOT / "target" / "release" / "lily", type=pathlib.Path)
    parser.add_argument("--max-examples", default=15, type=int)
    arguments = parser.parse_args()
    if not arguments.binary.exists():
        fail(f"{arguments.binary} is missing", "cargo build --release -p lily")
    program = install()
    # A short context bounds the answers to requests that do not bound them.
    command = [arguments.binary, "serve", "--port", "0", "--ctx", "256", "--json", "--log", "warn"]
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    try:
        url = announced(server)["url"]
        command = [program, "run", f"{url}/openapi.json", "--checks", CHECKS, "--phases", "coverage,fuzzing"]
        command += ["--max-examples", str(arguments.max_examples), "--request-timeout", "60", "--seed", "1"]
        try:
            done = subprocess.run([*command, "--warnings", "off"], cwd=VENV, timeout=LIMIT_S, check=False)
        except subprocess.TimeoutExpired:
            fail(f"schemathesis took more than {LIMIT_S} s", "look at the last request in the server's log")
        if done.returncode:
            fail("schemathesis found a fault, above", "repeat it with the curl command it shows")
        if server.poll() is not None:
            fail(f"the server ended with status {server.returncode}", "look at its last words, above")
    finally:
        server.terminate()
        server.wait(timeout=60)
    print("api: what schemathesis sent was answered as documented")


if __name__ == "__main__":
    main()
