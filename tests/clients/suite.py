"""What the suites share: checks, a server that says what a suite wants, agents in a sandbox of files.

A suite is started as `SUITE URL SCRIPTED`: the address of `lily serve` with the demo model, and the
program of crates/server/examples/scripted.rs. It ends with one line, `NAME VERSION ok (n checks, s)`,
or says what failed and exits with 1.
"""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import traceback

URL = sys.argv[1].rstrip("/") if len(sys.argv) > 1 else "http://127.0.0.1:8080"
SCRIPTED = sys.argv[2] if len(sys.argv) > 2 else None
ROOT = pathlib.Path(__file__).resolve().parents[2]
AGENT_LIMIT_S = 180
CHECKS = []


def check(function):
    """Registers a check; they run in the order of the file."""
    CHECKS.append(function)
    return function


def main(name, version):
    """Runs the checks; returns the exit status."""
    failed, started = 0, time.monotonic()
    for function in CHECKS:
        try:
            function()
        except Exception:  # every failure of a check counts alike
            failed += 1
            print(f"FAILED  {name}: {function.__name__}")
            traceback.print_exc(file=sys.stdout)
    seconds = time.monotonic() - started
    if failed:
        print(f"{name} {version} FAILED ({failed} of {len(CHECKS)} checks)")
    else:
        print(f"{name} {version} ok ({len(CHECKS)} checks, {seconds:.1f} s)")
    return 1 if failed else 0


# --- scripted answers ----------------------------------------------------------------------


def call(tool, **arguments):
    """A call in the model's own wire format."""
    parameters = "".join(
        f"<parameter={key}>\n{value if isinstance(value, str) else json.dumps(value)}\n</parameter>\n"
        for key, value in arguments.items()
    )
    return f"<tool_call>\n<function={tool}>\n{parameters}</function>\n</tool_call>"


def rule(answer, has=(), lacks=(), think=""):
    """`answer` follows prompts that contain all of `has` and none of `lacks`."""
    texts = [[parts] if isinstance(parts, str) else list(parts) for parts in (has, lacks)]
    return {"has": texts[0], "lacks": texts[1], "think": think, "answer": answer}


@contextlib.contextmanager
def scripted(*rules, model="scripted"):
    """A server that answers by these rules; gives its address without `/v1`."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "rules.json"
        file.write_text(json.dumps({"model": model, "rules": rules}), encoding="utf-8")
        log = open(pathlib.Path(folder) / "log", "w+", encoding="utf-8")
        command = [SCRIPTED, "--script", str(file)]
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            yield json.loads(server.stdout.readline())["url"]
        except BaseException:
            log.seek(0)
            print(f"the scripted server's log ends with:\n{log.read()[-3000:]}")
            raise
        finally:
            # It ends with its standard input; a client that keeps a connection would delay it.
            server.stdin.close()
            try:
                server.wait(2)
            except subprocess.TimeoutExpired:
                server.kill()
            server.wait()
            server.stdout.close()
            log.close()


# --- agents --------------------------------------------------------------------------------


@contextlib.contextmanager
def workplace():
    """An empty home and a git repository with one file, both thrown away; gives their paths.

    Below target/ and not in /tmp, because Codex warns of a home there.
    """
    base = ROOT / "target" / "clients-homes"
    base.mkdir(parents=True, exist_ok=True)
    folder = pathlib.Path(tempfile.mkdtemp(dir=base))
    home, repository = folder / "home", folder / "repository"
    home.mkdir()
    repository.mkdir()
    (repository / "greet.py").write_text('def greet(name):\n    return "Hello, " + name\n', encoding="utf-8")
    git = ["git", "-c", "user.name=Tester", "-c", "user.email=tester@example.org", "-c", "init.defaultBranch=main"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "Start"]):
        subprocess.run([*git, *words], cwd=repository, check=True)
    try:
        yield home, repository
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def environment(home, **more):
    """Variables for a program that may know nothing but this home."""
    node = pathlib.Path(os.environ.get("CLIENTS_NODE", shutil.which("node") or "node"))
    path = f"{node.parent}{os.pathsep}/usr/local/bin:/usr/bin:/bin"
    proxies = {key: value for key, value in os.environ.items() if key.lower().endswith("_proxy")}
    fixed = {"PATH": path, "HOME": str(home), "LANG": "C.UTF-8", "TERM": "dumb", "CI": "1", "NO_COLOR": "1"}
    return {**proxies, **fixed, **more}


def run_agent(command, folder, variables):
    """Runs a program to its end; returns what it printed, or raises with it."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words, cwd=folder, env=variables, stdin=subprocess.DEVNULL, timeout=AGENT_LIMIT_S,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise AssertionError(f"{words[0]} took more than {AGENT_LIMIT_S} s:\n{text_of(error.output)[-4000:]}") from None
    assert done.returncode == 0, f"{words[0]} ended with {done.returncode}:\n{done.stdout[-4000:]}"
    return done.stdout


def text_of(output):
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""


def agents():
    """The folder in which npm installed the agents."""
    return pathlib.Path(os.environ.get("CLIENTS_AGENTS", ROOT / "target" / "clients-agents")) / "node_modules"


def npm_version(package):
    return json.loads((agents() / package / "package.json").read_text(encoding="utf-8"))["version"]
